"""A web server of files, which counts what it sends and can fail."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MOST_STALL_S = 30


class FileServer:
    """Serves the files of a folder, also parts of them, within a ``with`` block.

    Attributes:
        folder: The folder.
        faults: What is done to the next answers with content, each once: a status such as ``"503"``; ``"cut"``:
            half of the content comes; ``"stall"``: none comes; ``"more"``: more of it than was asked for; ``""``:
            nothing.
        lasting_fault: What is done to all answers with content after those.
        serves_ranges: Whether parts of files are sent.
        has_versions: Whether answers have an ETag.
        refused: Methods that are answered with the status 403.
        requests: Methods and paths of the requests.
        ranges: The parts that were asked for.
        num_bytes: Number of bytes of content that were sent.
        last_headers: Headers of the last request.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.faults: list[str] = []
        self.lasting_fault = ""
        self.serves_ranges = self.has_versions = True
        self.refused: tuple[str, ...] = ()
        self.forget()

    def forget(self) -> None:
        """Begin to count anew."""
        self.requests: list[tuple[str, str]] = []
        self.ranges: list[str] = []
        self.num_bytes = 0
        self.last_headers: Mapping[str, str] = {}

    @property
    def num_reads(self) -> int:
        """Number of requests for content."""
        return sum(method == "GET" for method, _ in self.requests)

    @property
    def url(self) -> str:
        """URL of the folder."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FileServer:
        handler = type("Handler", (_Handler,), {"files": self})
        self.is_closed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that hang up
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def stall(self) -> None:
        """Wait until the server is closed."""
        self.is_closed.wait(MOST_STALL_S)


class _Handler(BaseHTTPRequestHandler):
    files: FileServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def _answer(self, has_body: bool) -> None:
        files = self.files
        name = self.path.partition("?")[0]
        files.requests.append((self.command, name))
        files.last_headers = self.headers
        path = files.folder / name.lstrip("/")
        fault = ""
        if has_body:
            fault = files.faults.pop(0) if files.faults else files.lasting_fault
        if self.command in files.refused:
            return self.send_error(403)
        if fault.isdigit():
            return self.send_error(int(fault))
        if path.is_dir():
            return self._list(path, has_body)
        if not path.is_file():
            return self.send_error(404)
        with path.open("rb") as file:
            content = file.read()
        state = path.stat()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        part = content
        if wanted and files.serves_ranges:
            files.ranges.append(wanted.group())
            start, end = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
            part = content[start : end + 1]
            self.send_response(206 if part else 416)
            self.send_header("Content-Range", f"bytes {f'{start}-{end}' if part else '*'}/{len(content)}")
        else:
            self.send_response(200)
        if files.has_versions:
            self.send_header("ETag", f'"{state.st_size:x}-{state.st_mtime_ns:x}"')
        self._send(part, has_body, fault)

    def _list(self, folder: Path, has_body: bool) -> None:
        names = [f"{each.name}/" if each.is_dir() else each.name for each in sorted(folder.iterdir())]
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self._send("".join(f'<a href="{name}">{name}</a>\n' for name in names).encode(), has_body)

    def _send(self, content: bytes, has_body: bool, fault: str = "") -> None:
        if fault == "more":
            content *= 100
            self.close_connection = True
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if fault == "stall":
            self.files.stall()
        if fault in ("cut", "stall"):
            self.close_connection = True
            content = content[: len(content) // 2]
        if has_body:
            self.files.num_bytes += len(content)
            try:
                self.wfile.write(content)
            except OSError:
                self.close_connection = True  # nobody waits for it any more

    def log_message(self, *arguments: Any) -> None:
        pass
