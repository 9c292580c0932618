# SPDX-License-Identifier: Apache-2.0
"""A native reader as the input of a pipeline."""

from __future__ import annotations

import functools
import inspect
import os
import reprlib
import warnings
from abc import ABC
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import attrs
import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...checks import check_shard, did_you_mean, listed
from ...draws.keyed_draws import derive_key
from ...engine.dali.texts import DEPRECATED_SEQUENCES, FEWER_SAMPLES_THAN_SHARDS, NO_SAMPLES
from ...errors import SettingError
from ...providers.files.storage import is_url
from ...sample_data import ImageContent, SampleDataGroup
from ...sample_data.formats import UNKNOWN_CONTENT
from ...sample_data.names import Name
from ..native_input import OPERATOR, NativeInput, NativeRun
from .reader_files import ReaderArguments, is_on_s3

_short = reprlib.Repr()  # lists of files can be long
_short.maxstring = _short.maxother = 200
_short_repr = _short.repr

_OWN = {"name": "the pipeline names its readers itself", "device": "the pipeline's `device_id` chooses it"}


@attrs.frozen
class ReaderField:
    """An output of a reader.

    Attributes:
        name: Name of the data field; None for an output that is left out.
        dtype: Its type.
        content: Known properties of the image that it holds.
    """

    name: Name | None
    dtype: types.DALIDataType
    content: ImageContent = UNKNOWN_CONTENT


class ReaderInput(NativeInput, ABC):
    """A reader of DALI as the input of a pipeline: the base class of such inputs.

    All arguments of DALI's operator can be given by name, and reach it unchanged. A reader has no end: an epoch is
    as many batches as the largest shard fills, each of them full. With ``pad_last_batch`` the last sample of the
    shard is repeated at the end; without it, samples are one stream, and the last batch is filled with the first
    samples of the next epoch. The position is in DALI's checkpoints.

    Readers shuffle as DALI does (``random_shuffle`` with a buffer of ``initial_fill`` samples, or
    ``shuffle_after_epoch``); with no ``seed`` given, it is derived from the seed of the pipeline, and is the same
    on all ranks.

    Attributes:
        fields: The outputs, in DALI's order; set before the constructor of this class runs.
    """

    fields: Sequence[ReaderField]

    def __init__(self, operator: Callable[..., object], arguments: ReaderArguments) -> None:
        """Set up; nothing is read.

        Args:
            operator: Function of `nvidia.dali.fn`.
            arguments: Its arguments.

        Raises:
            SettingError: An argument is unknown or reserved, or a required one is missing.
        """
        self._arguments = {name: _plain(value) for name, value in arguments.items()}
        self._check_arguments(operator)
        if all(field.name is None for field in self.fields):
            raise SettingError(f"At least one output of fn.{self.operator_name} needs a name, all are None.")
        _ = self.used_sample_data_structure  # raises for names that occur twice
        self._shard = check_shard(arguments.get("shard_id", 0), arguments.get("num_shards", 1))

    def _check_arguments(self, operator: Callable[..., object]) -> None:
        name = self.operator_name
        parameters = inspect.signature(operator).parameters
        for given in self._arguments:
            if given in _OWN:
                raise SettingError(f"`{given}` of fn.{name} cannot be given: {_OWN[given]}.")
            if given not in parameters:
                meant = did_you_mean(given, parameters).replace("'", "`")
                raise SettingError(f"`{given}` is not an argument of fn.{name}.{meant}")
        missing = [
            f"`{each.name}`"
            for each in parameters.values()
            if each.default is each.empty and each.kind is each.KEYWORD_ONLY and each.name not in self._arguments
        ]
        if missing:
            raise SettingError(f"fn.{name} needs {', '.join(missing)}.")

    def _require_source(self, *exclusive: str, alone: str | None = None) -> None:
        """Check that exactly one argument says where the files are, and that it is there."""
        given = [name for name in exclusive if not is_empty(self._arguments.get(name))]
        if len(given) > 1 or not (given or (alone and self._arguments.get(alone) is not None)):
            names = ", ".join(f"`{name}`" for name in exclusive)
            or_alone = f", or `{alone}` alone" if alone else ""
            got = listed(f"`{name}`" for name in given)
            raise SettingError(f"fn.{self.operator_name} needs exactly one of {names}{or_alone}, got {got}.")
        root = self._arguments.get("file_root")
        if root and not is_on_s3(root):
            self._require_folder()
        self._require_files(*(name for name in ("file_list",) if name in given))

    def _require_folder(self) -> None:
        root = self._arguments["file_root"]
        if not os.path.isdir(root):
            problem = "is a file" if os.path.exists(root) else "does not exist"
            rule = f"`file_root` of fn.{self.operator_name} must be a folder"
            raise SettingError(f"{rule}, but {str(root)!r} {problem}.{self._advice_on(root)}")

    def _require_files(self, *names: str) -> None:
        for name in names:
            paths = self._arguments.get(name)
            for path in [paths] if isinstance(paths, str) else paths or ():
                if not os.path.isfile(path):
                    what = "is not a file" if os.path.exists(path) else "does not exist"
                    of = f"`{name}` of fn.{self.operator_name}"
                    raise SettingError(f"{of}: {str(path)!r} {what}.{self._advice_on(path)}")

    def _advice_on(self, path: object) -> str:
        if not is_url(str(path)):
            return ""
        return (
            " This operator of DALI reads local files only. Use a data provider, such as FileDataProvider, which "
            "reads URLs as well."
        )

    # --- the operator -----------------------------------------------------------------------------

    def define(self, seed: int) -> Sequence[DataNode]:
        """Define the reader in the current pipeline. See `NativeInput.define`."""
        arguments = {"seed": derive_key("native reader", seed) >> 33, **self._arguments}
        operator: Any = functools.reduce(getattr, self.operator_name.split("."), cast(Any, fn))
        with warnings.catch_warnings(record=True) as caught:  # DALI overrules filters
            outputs = operator(name=OPERATOR, device="cpu", **arguments)
        for warning in caught:
            # fn.readers.sequence is deprecated in favour of what this package offers next to it.
            if DEPRECATED_SEQUENCES not in str(warning.message):
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        fields = zip(self.fields, self._in_order(outputs), strict=True)
        return [output for field, output in fields if field.name is not None]

    def _in_order(self, outputs: Any) -> Sequence[DataNode]:
        """Get the outputs of the operator in the order of the fields."""
        return tuple(outputs) if isinstance(outputs, list | tuple) else (outputs,)

    def advice(self, reason: str) -> str:
        """See `NativeInput.advice`."""
        if FEWER_SAMPLES_THAN_SHARDS not in reason:
            return ""
        empty = self._why_empty() if NO_SAMPLES in reason else ""
        return empty or f"There must be at least as many samples as shards ({self._shard[1]})."

    def _why_empty(self) -> str:
        """Explain why the reader may have found no sample at all; may be empty."""
        return ""

    def begin(self, pipeline: Any) -> ReaderRun:
        """Start to count the batches of the reader. See `NativeInput.begin`."""
        meta = pipeline.reader_meta(OPERATOR)
        largest_shard = -(-meta["epoch_size"] // meta["number_of_shards"])
        return ReaderRun(-(-largest_shard // pipeline.max_batch_size))

    @property
    def shard(self) -> tuple[int, int]:  # type: ignore[override]
        """Shard id and number of shards."""
        return self._shard

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples."""
        blueprint = SampleDataGroup()
        for field in self.fields:
            if field.name is not None:
                blueprint.add_data_field(field.name, field.dtype, content=field.content)
        return blueprint

    def __repr__(self) -> str:
        """Return the arguments that were given."""
        given = ", ".join(f"{name}={_short_repr(value)}" for name, value in self._arguments.items())
        return f"{type(self).__name__}({given})"


class ReaderRun(NativeRun):
    """Counts the batches that a reader makes: DALI's readers never end."""

    num_batches: int

    def __init__(self, num_batches: int) -> None:
        """Begin an epoch of that many batches."""
        self.num_batches = num_batches
        self._num_begun = 0

    def continue_at(self, num_begun: int) -> int:
        """See `NativeRun.continue_at`."""
        self._num_begun = num_begun if num_begun < self.num_batches else 0
        return self._num_begun

    def begin_batch(self) -> None:
        """See `NativeRun.begin_batch`."""
        if self._num_begun >= self.num_batches:
            raise StopIteration
        self._num_begun += 1

    def begin_epoch(self) -> None:
        """See `NativeRun.begin_epoch`."""
        self._num_begun = 0


def is_empty(value: object) -> bool:
    """Whether an argument was not given, or is empty."""
    return value is None or (hasattr(value, "__len__") and len(value) == 0)


def _plain(value: Any) -> Any:
    """Convert paths to texts and arrays to lists, since DALI accepts neither."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple) and any(isinstance(each, Path) for each in value):
        return [str(each) if isinstance(each, Path) else each for each in value]
    return value
