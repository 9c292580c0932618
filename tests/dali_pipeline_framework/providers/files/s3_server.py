"""A server of S3 in this process (moto), which can fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

KEY, SECRET = "AKIATESTINGTESTINGAA", "testing/secret/that/nobody/may/see"


class S3Server:
    """Serves the bucket ``bucket``, within a ``with`` block.

    Attributes:
        faults: What is done to the next answers with parts of objects, each once: a status such as ``"503"``;
            ``"cut"``: half of the content comes; a function: called before the answer; ``""``: nothing.
        needs_credentials: Whether those of others are refused.
    """

    def __init__(self) -> None:
        self.faults: list[str | Callable[[], object]] = []
        self.needs_credentials = False
        self._application = DomainDispatcherApplication(create_backend_app)

    def __enter__(self) -> S3Server:
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._server.log_startup = lambda: None  # type: ignore[method-assign]
        self._server.RequestHandlerClass.log = lambda *_: None  # type: ignore[method-assign,attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        settings = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}
        self.client: Any = boto3.client("s3", endpoint_url=self.url, **settings)
        self.client.create_bucket(Bucket="bucket")
        return self

    def __exit__(self, *exception: object) -> None:
        from moto.backends import get_backend

        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()
        get_backend("s3").reset()

    @property
    def url(self) -> str:
        """URL of the server."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of s3fs."""
        # Instances of s3fs are kept: those of another server have another number of the port.
        client = {"retries": {"max_attempts": 1, "mode": "standard"}}
        return {"endpoint_url": self.url, "key": KEY, "secret": SECRET, "config_kwargs": client}

    def put(self, name: str, content: bytes) -> None:
        """Write an object."""
        self.client.put_object(Bucket="bucket", Key=name, Body=content)

    def _answer(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if self.needs_credentials and KEY not in environment.get("HTTP_AUTHORIZATION", ""):
            return _error(start, "403 Forbidden", "InvalidAccessKeyId")
        is_read = environment["REQUEST_METHOD"] == "GET" and "list-type" not in environment["QUERY_STRING"]
        fault: Any = ""
        if is_read:
            fault = self.faults.pop(0) if self.faults else ""
        if callable(fault):
            fault()
        elif fault and fault != "cut":
            return _error(start, f"{fault} Failed", "SlowDown")
        answer: Iterable[bytes] = self._application(environment, start)
        if fault == "cut":
            content = b"".join(answer)
            return [content[: len(content) // 2]]
        return answer


def _error(start: Callable[..., Any], status: str, code: str) -> list[bytes]:
    content = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>refused</Message></Error>".encode()
    start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(content)))])
    return [content]
