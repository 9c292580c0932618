"""Videos that are damaged in the ways that FFmpeg does not report."""

from __future__ import annotations

from pathlib import Path


def zeroed(source: Path, path: Path, position: int, length: int = 200) -> Path:
    """Copy a file with some bytes set to 0."""
    content = bytearray(source.read_bytes())
    content[position : position + length] = bytes(len(content[position : position + length]))
    path.write_bytes(content)
    return path
