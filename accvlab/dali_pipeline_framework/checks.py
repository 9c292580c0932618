# SPDX-License-Identifier: Apache-2.0
"""Checks of settings: each returns the value in plain Python types, or raises a `SettingError` with the rule.

NumPy scalars and arrays are accepted wherever numbers are; a ``bool`` is not a number; a value of the wrong type
is refused with the rule as well. ``value`` is the value of the argument ``name``. The limits ``at_least`` and
``at_most`` are allowed values, ``above`` is not; ``advice`` is a further sentence of the message.
"""

from __future__ import annotations

import difflib
import itertools
import math
import operator
import os
import unicodedata
from collections.abc import Callable, Iterable, Sized
from numbers import Real
from typing import Any, TypeVar, get_args

import attrs
import numpy as np

from .errors import SettingError, error_that_is_also

_MOST_CHARACTERS = 200
_MOST_ELEMENTS = 2**20  # of an iterable without a length, which may never end
_T = TypeVar("_T")

MOST_SAMPLES = 2**62  # so that positions, also some way after the last sample, stay within int64
MOST_IN_BATCH = 2**24  # DALI reserves some 200 bytes for each sample that a batch may have


# --- numbers --------------------------------------------------------------------------------------------


def whole_number(
    value: object, name: str, *, at_least: int | None = None, at_most: int | None = None, advice: str = ""
) -> int:
    """Check a whole number; ``5.0`` is not one."""
    number = _whole(value)
    if number is None or (at_least is not None and number < at_least):
        rule = "a whole number" if at_least is None else f"a whole number of at least {at_least}"
    elif at_most is not None and number > at_most:
        rule = f"at most {_written(at_most)}"
    else:
        return number
    raise setting_error(name, rule, value, advice)


def number(
    value: object,
    name: str,
    *,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    above: float = -math.inf,
    may_be_infinite: bool = False,
    may_be_nan: bool = False,
    advice: str = "",
) -> float:
    """Check a number: finite, unless infinity, or NaN and infinity, may be one here."""
    real = _real(value)
    if real is not None and may_be_nan and not math.isfinite(real):
        return real
    is_number = real is not None and (math.isfinite(real) or (may_be_infinite and not math.isnan(real)))
    is_above = above == -math.inf or (real is not None and above < real)
    if real is None or not is_number or not is_above or not at_least <= real <= at_most:
        rule = _rule_of_numbers(at_least, at_most, above, may_be_infinite or may_be_nan)
        raise setting_error(name, rule, value, advice)
    return real


def probability(value: object, name: str) -> float:
    """Check a number in [0, 1]."""
    return number(value, name, at_least=0, at_most=1)


def number_range(
    value: object,
    name: str,
    *,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    above: float = -math.inf,
    may_be_infinite: bool = False,
) -> tuple[float, float]:
    """Check the bounds of a range, least and greatest: a list, tuple or array of two numbers."""
    reals = _reals(value)
    least, greatest = reals if reals is not None and len(reals) == 2 else (math.nan, math.nan)
    is_allowed = may_be_infinite or (math.isfinite(least) and math.isfinite(greatest))
    if not is_allowed or not at_least <= least <= greatest <= at_most or not above < least:
        lower = f"{above:g} < " if above != -math.inf else "" if at_least == -math.inf else f"{at_least:g} <= "
        upper = "" if at_most == math.inf else f" <= {at_most:g}"
        raise setting_error(name, f"two numbers, {lower}least <= greatest{upper}", value)
    return least, greatest


def number_list(
    value: object,
    name: str,
    what: str,
    *,
    count: int | None = None,
    may_be_one: bool = False,
    is_finite: bool = True,
) -> tuple[float, ...]:
    """Check a list, tuple or array of numbers, none of them NaN.

    Args:
        value: What was given.
        name: Name of the argument.
        what: The rule for the message, e.g. "three numbers".
        count: How many there must be; None for at least one.
        may_be_one: Whether one number is accepted in place of a list.
        is_finite: Whether all must be finite.
    """
    reals = _reals(value)
    if reals is None and may_be_one:
        one = _real(value)
        reals = None if one is None else (one,)
    is_wrong = math.isnan if not is_finite else lambda real: not math.isfinite(real)
    if not reals or len(reals) != (count or len(reals)) or any(map(is_wrong, reals)):
        raise setting_error(name, what, value)
    return reals


def whole_number_list(
    value: object, name: str, what: str, *, count: int | None = None, at_least: int, may_be_one: bool = False
) -> tuple[int, ...]:
    """Check a list of whole numbers; see `number_list`. Without a ``count``, it may be empty."""
    given = elements(value)
    if given is None and may_be_one:
        given = [value] * (count or 1)
    wholes = [_whole(each) for each in given or ()]
    kept = tuple(whole for whole in wholes if whole is not None and whole >= at_least)
    if given is None or len(kept) != len(given) or count not in (None, len(given)):
        raise setting_error(name, what, value)
    return kept


def index_in(value: object, name: str, size: int) -> int:
    """Check an index into something of a size, in [0, size - 1]; else it is also an IndexError."""
    index = _whole(value)
    if index is None or not 0 <= index < size:
        error = setting_error(name, f"in [0, {size - 1}]", value)
        raise error_that_is_also(SettingError, (IndexError,), str(error))
    return index


def check_shard(shard_id: object, num_shards: object) -> tuple[int, int]:
    """Check the number of a shard, and the number of shards."""
    shards = whole_number(num_shards, "num_shards", at_least=1)
    shard = whole_number(shard_id, "shard_id", at_least=0)
    if shard >= shards:
        raise SettingError(
            f"`shard_id` must be in [0, {shards - 1}] with `num_shards={shards}`, got {shard}. "
            f"Shards are counted from 0: usually `shard_id` is the rank and `num_shards` the world size."
        )
    return shard, shards


def _whole(value: object) -> int | None:
    if type(value) is int:
        return value
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except Exception:  # of an object that is no number, its own as well
        return None


def _real(value: object) -> float | None:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except Exception:  # an int beyond float64
        return None


def elements(value: object) -> list[Any] | None:
    """Get the elements of an ordered iterable (a list, an array, a generator); None for others, and for text.

    An iterable without a length, such as a generator, may have a million.
    """
    if isinstance(value, str | bytes | dict | set | frozenset) or not isinstance(value, Iterable):
        return None
    try:
        if isinstance(value, Sized):
            return list(value)
        found = list(itertools.islice(value, _MOST_ELEMENTS + 1))
    except Exception:  # an array without axes, or an error of the object's own
        return None
    return found if len(found) <= _MOST_ELEMENTS else None


def _reals(value: object) -> tuple[float, ...] | None:
    reals = [_real(each) for each in elements(value) or ()]
    known = tuple(real for real in reals if real is not None)
    return known if reals and len(known) == len(reals) else None


def _rule_of_numbers(at_least: float, at_most: float, above: float, may_be_infinite: bool) -> str:
    has_lower, has_upper = max(at_least, above) != -math.inf, at_most != math.inf
    if has_lower and has_upper:
        return f"in {f'({above:g}' if above != -math.inf else f'[{at_least:g}'}, {at_most:g}]"
    if has_lower:
        return f"a number above {above:g}" if above != -math.inf else f"a number of at least {at_least:g}"
    if has_upper:
        return f"a number of at most {at_most:g}"
    return "a number" if may_be_infinite else "a finite number"


def _written(limit: int) -> str:
    is_power = limit > 2**31 and limit & (limit - 1) == 0
    return f"2**{limit.bit_length() - 1}" if is_power else str(limit)


# --- other settings -------------------------------------------------------------------------------------


def flag(value: object, name: str) -> bool:
    """Check a yes or no: a ``bool``, or 0 or 1."""
    if isinstance(value, bool | np.bool_) or _whole(value) in (0, 1):
        return bool(value)
    raise setting_error(name, "True or False", value)


def choice(value: object, name: str, allowed: Iterable[_T]) -> _T:
    """Check that a value is one of a few; returns the known one."""
    known = list(allowed)
    for each in known:
        if _is_same(value, each):
            return each
    texts = [repr(each) if isinstance(each, str) else str(each) for each in known]
    meant = did_you_mean(value, [each for each in known if isinstance(each, str)])
    raise setting_error(name, f"one of {', '.join(texts)}", value, meant.strip())


def _is_same(value: object, known: object) -> bool:
    if isinstance(value, str) and isinstance(known, str):
        return str.__eq__(known, value)
    try:
        return isinstance(value, type(known)) and bool(value == known)
    except Exception:  # of an object with its own comparison, such as an array
        return False


def field_name(value: object, name: str) -> str | int:
    """Check the name of a field."""
    checked = _name(value)
    if checked is None:
        raise setting_error(name, "a name (str or int)", value)
    return checked


def field_names(value: object, name: str) -> tuple[str | int, ...]:
    """Check the name of a field, or a sequence of names; None is no name."""
    if value is None:
        return ()
    one = _name(value)
    given = [value] if one is not None else elements(value)
    checked = tuple(name for name in map(_name, given or ()) if name is not None)
    if given is None or len(checked) != len(given) or isinstance(value, np.ndarray):
        raise setting_error(name, "a name (str or int) or a sequence of names", value)
    return checked


def text(value: object, name: str, *, may_be_empty: bool = False) -> str:
    """Check a ``str``."""
    if not isinstance(value, str) or not (value or may_be_empty):
        raise setting_error(name, "a text" if may_be_empty else "a text that is not empty", value)
    return str.__str__(value)


def file_path(value: object, name: str) -> str:
    """Check the path of a file or folder: a text or an ``os.PathLike``; not whether it exists."""
    try:
        path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
        is_path = isinstance(path, str) and path and "\0" not in path and os.fsencode(path)
    except Exception:  # characters that no file name has, or an error of the object's own
        is_path = False
    if not is_path:
        raise setting_error(name, "the path of a file or folder (str or Path)", value)
    return str(path)


def file_paths(value: object, name: str, what: str = "the path of a file, or several of them") -> tuple[str, ...]:
    """Check the path of a file or folder, or several, see `file_path`; ``what`` is the rule for the message."""
    if isinstance(value, str | os.PathLike):
        return (file_path(value, name),)
    try:
        if isinstance(value, Iterable) and not isinstance(value, bytes):
            return tuple([file_path(path, name) for path in value])
    except SettingError:
        raise
    except Exception as error:  # an array without axes, or an error of the object's own
        raise setting_error(name, what, value, "It has no elements.") from error
    raise setting_error(name, what, value)


def _name(value: object) -> str | int | None:
    return str.__str__(value) if isinstance(value, str) else _whole(value)


def instance(value: _T, name: str, cls: type) -> _T:
    """Check that a value is an object of a class."""
    if not isinstance(value, cls):
        advice = "Create an object of the class." if isinstance(value, type) else ""
        raise setting_error(name, f"of the class {cls.__name__}", value, advice)
    return value


def valid(check: Callable[..., object], **limits: object) -> Callable[[object, attrs.Attribute[_T], _T], None]:
    """Make a validator of a field of attrs from a check of this module; the argument has the name of the field."""

    def validator(instance: object, field: attrs.Attribute[_T], value: _T) -> None:
        check(value, field.name, **limits)

    return validator


def one_of(alternatives: object) -> Callable[[object, attrs.Attribute[_T], _T], None]:
    """Make a validator of a field of attrs for one of the values of a ``Literal``."""
    return valid(choice, allowed=get_args(alternatives))


# --- texts of messages ----------------------------------------------------------------------------------


def setting_error(name: str, rule: str, value: object, advice: str = "") -> SettingError:
    """Make the error for an argument that breaks a rule: "`size` must be <rule>, got <value>. <advice>"."""
    return SettingError(f"`{name}` must be {rule}, got {shown(value)}. {advice}".rstrip())


def shown(value: object) -> str:
    """Write a value for a message: its ``repr``, cut where it is long; its type, where ``repr`` fails."""
    try:
        written = repr(value)
    except Exception as error:  # an object's own; also an int of more digits than Python writes
        return f"<{type(value).__name__} that cannot be written: {type(error).__name__}>"
    return written if len(written) <= _MOST_CHARACTERS else f"{written[:_MOST_CHARACTERS]}..."


def listed(values: Iterable[object], most: int = 20) -> str:
    """Write values as ``a, b and 3 more``: at most ``most`` of them; "none" if there are none."""
    texts = [str(value) for value in values]
    left_out = f" and {len(texts) - most} more" if len(texts) > most else ""
    return f"{', '.join(texts[:most]) or 'none'}{left_out}"


def bullets(values: Iterable[object], most: int = 20) -> str:
    """Write values as a list with ``-``, one per line; at most ``most`` of them, then how many more."""
    texts = [str(value) for value in values]
    left_out = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return "\n".join(f"  - {each}" for each in [*texts[:most], *left_out])


def did_you_mean(name: object, known: Iterable[str | int], least_similarity: float = 0.6) -> str:
    """Suggest the name that is closest to a wrong one: `` Did you mean 'image'?``; empty if none is close.

    The right text in the wrong type counts as close: ``0`` for ``'0'``. Names of the same letters that differ in
    their Unicode form, as of files from macOS, look alike and are written with escapes.
    """
    by_text = {str(each): each for each in known}
    text = str.__str__(name) if isinstance(name, str) else shown(name)
    same = [each for each in by_text if unicodedata.normalize("NFC", each) == unicodedata.normalize("NFC", text)]
    if same and same[0] != text:
        return f" There is {same[0]!a}, the same letters in another Unicode form."
    close = difflib.get_close_matches(text, by_text, 1, least_similarity)
    return f" Did you mean {by_text[close[0]]!r}?" if close else ""
