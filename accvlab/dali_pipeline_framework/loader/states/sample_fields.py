# SPDX-License-Identifier: Apache-2.0
"""The fields of the samples in a state: a fingerprint, which decides, and names and types, for messages.

States of earlier releases have the fingerprint only.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Iterable

from ...sample_data import FieldPath, GroupFormat
from ...sample_data.format_problems import described_together
from ...sample_data.names import format_path, format_paths

_MOST_BYTES = 1 << 20
_MOST_LINES = 10
# What packed texts need not repeat. States are read with it, so it must not change.
_COMMON = b"""\
: FLOAT64
: UINT16
: INT16
: INT32
: BOOL
: STRING
projection: FLOAT
intrinsics: FLOAT
boxes: FLOAT
labels: INT32
cameras[0].image: UINT8
position.epoch: INT64
position.batch: INT64
position.slot: INT64
position.sample_index: INT64
position.sequence: INT64
position.frame: INT64
position.clip: INT64
position.is_first: BOOL
position.is_last: BOOL
position.is_padding: BOOL"""
_RAW = -zlib.MAX_WBITS  # a state has a checksum of its own
_PART_OF_PATH = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def fingerprint(blueprint: GroupFormat) -> str:
    """A short text that tells formats apart: names, types and their order."""
    return _mark_of(_text_of(blueprint))


def fields_for_state(blueprint: GroupFormat) -> str:
    """The fields of a format as they are in a state: fingerprint, and packed names and types."""
    text = _text_of(blueprint)
    packing = zlib.compressobj(9, zlib.DEFLATED, _RAW, zdict=_COMMON)
    packed = packing.compress(text.encode()) + packing.flush()
    return f"{_mark_of(text)} {base64.b85encode(packed).decode()}"


def is_fields(text: str) -> bool:
    """Whether a text of a state can be read."""
    try:
        _types_of(text)
    except (ValueError, zlib.error):
        return False
    return True


def difference_of_fields(saved: str, own: str) -> str:
    """Say how the fields in a state and those of a loader differ; empty where they do not."""
    there, here = _types_of(saved), _types_of(own)
    marks = [text.partition(" ")[0] for text in (saved, own)]
    if marks[0] == marks[1]:
        return ""
    if not there or not here:
        return f"fingerprint {marks[0]} in the state, {marks[1]} here"
    more, less = ([path for path in one if path not in other] for one, other in ((here, there), (there, here)))
    lines = [
        f"{len(paths)} field{'s' * (len(paths) > 1)} {word} than when the state was saved: "
        f"{format_paths(map(_path_of, paths))}"
        for paths, word in ((more, "more"), (less, "less"))
        if paths
    ]
    both = ((path, there[path], here[path]) for path in here if path in there)
    changed = [(_path_of(path), f"{old} in the state, {new} here") for path, old, new in both if old != new]
    lines += described_together(changed)
    if not lines:
        lines = [f"another order, {_listed(there)} in the state, {_listed(here)} here"]
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES - 1], f"and {len(lines) - _MOST_LINES + 1} more"]
    return "; ".join(lines)


def _text_of(blueprint: GroupFormat) -> str:
    leaves = zip(blueprint.flat_paths, blueprint.flat_dtypes, strict=True)
    return "\n".join(f"{format_path(path)}: {dtype.name}" for path, dtype in leaves)


def _mark_of(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _types_of(text: str) -> dict[str, str]:
    """Types by the paths of fields, as far as a text of a state tells them."""
    mark, _, packed = text.partition(" ")
    if not packed:
        return {}
    unpacking = zlib.decompressobj(_RAW, zdict=_COMMON)
    content = unpacking.decompress(base64.b85decode(packed), _MOST_BYTES).decode()
    if _mark_of(content) != mark:
        raise ValueError("it is cut short, or too long, or belongs to another fingerprint")
    lines = (line.rpartition(": ") for line in content.split("\n"))
    return {path: dtype for path, _, dtype in lines}


def _path_of(text: str) -> FieldPath:
    path = tuple(int(index) if index else name for index, name in _PART_OF_PATH.findall(text))
    return path if format_path(path) == text else (text,)


def _listed(paths: Iterable[str]) -> str:
    return format_paths(map(_path_of, paths))
