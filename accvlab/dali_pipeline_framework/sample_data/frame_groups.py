# SPDX-License-Identifier: Apache-2.0
"""The group in which the encoded frames of a sequence travel from a provider to the step that decodes them."""

from __future__ import annotations

from nvidia.dali import types

from .formats import GroupFormat, LeafFormat

ENCODED_NAME = "encoded"
"""An array of ``F`` image files, ``(num_bytes,)`` uint8 each."""

PLACES_NAME = "places"
"""Only where sequences share frames, ``(3, F)`` int32: where the frames of a sequence are."""

MOST_FRAMES_TO_SHARE = 64
"""Inputs that ``fn.multi_paste`` puts together at once."""


def why_no_frames(found: GroupFormat | LeafFormat) -> str:
    """Why a field is not a group of encoded frames; empty where it is one."""
    if isinstance(found, LeafFormat):
        return "is a data field"
    encoded = found.get((ENCODED_NAME,))
    if not isinstance(encoded, GroupFormat) or not encoded.is_array() or not encoded.names:
        return f"has no array {ENCODED_NAME!r} of encoded images"
    odd = [leaf.dtype.name for leaf in encoded.flat_leaves if leaf.dtype != types.DALIDataType.UINT8]
    if odd or len(encoded.flat_leaves) != len(encoded.names):
        return f"its {ENCODED_NAME!r} must be UINT8 (the bytes of image files), got {', '.join(odd) or 'groups'}"
    if any(leaf.content.is_encoded is False for leaf in encoded.flat_leaves):
        return f"its {ENCODED_NAME!r} are decoded already"
    places = found.get((PLACES_NAME,))
    if places is not None and (not isinstance(places, LeafFormat) or places.dtype != types.DALIDataType.INT32):
        return f"its {PLACES_NAME!r} must be an INT32 field"
    return ""
