# SPDX-License-Identifier: Apache-2.0
"""Arguments that users of DALI's readers and PyTorch's loader look for, and what takes their place."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from .errors import SettingError, error_that_is_also

_Init = TypeVar("_Init", bound=Callable[..., None])

_BY_SAMPLER = (
    "A sampler makes the order: SamplerInputCallable(provider, ShuffledSampler(provider.get_number_of_samples()))."
)
_BY_LOADER = "Pass it to the DataLoader."
_BY_LAST_BATCH = "Pass `last_batch` to the DataLoader: 'drop', 'pad', 'partial' or 'wrap'."
_BY_SHARD = "Pass shard=(shard_id, num_shards), or shard='auto', to the DataLoader."
_NOT_NEEDED = "It has no counterpart here: leave it out."

OF_PROVIDERS: Mapping[str, str] = {
    **dict.fromkeys(("random_shuffle", "shuffle", "shuffle_after_epoch", "sampler"), _BY_SAMPLER),
    **dict.fromkeys(("seed", "shuffle_after_epoch_seed"), "The seed of the order is one of the sampler."),
    **dict.fromkeys(("batch_size", "num_workers", "num_threads", "device_id"), _BY_LOADER),
    **dict.fromkeys(("drop_last", "pad_last_batch", "last_batch"), _BY_LAST_BATCH),
    **dict.fromkeys(("shard", "shard_id", "num_shards"), _BY_SHARD),
    "stick_to_shard": "Shards are parts of each batch, so all data is shuffled. Leave it out.",
    "device": "Pass `device_id` to the DataLoader; the steps choose where they run.",
    "image_type": "The step that decodes has it: ImageDecoder(as_bgr=...), FrameSequenceDecoder(image_type=...).",
    **dict.fromkeys(
        ("sequence_length", "stride"),
        "For sequences there are FrameSequenceDataProvider (folders of frames) and VideoDataProvider, for clips "
        "of other data ClipDataProvider.",
    ),
    "name": "Fields have names of their own, see the arguments that end with `_name`.",
    **dict.fromkeys(
        (
            "initial_fill",
            "prefetch_queue_depth",
            "lazy_init",
            "dont_use_mmap",
            "read_ahead",
            "skip_cached_images",
            "bytes_per_sample_hint",
            "tensor_init_bytes",
            "preserve",
        ),
        _NOT_NEEDED,
    ),
}
"""Of data providers; some have one of these arguments, and it is not explained there."""

OF_INPUTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("batch_size", "num_workers", "num_threads", "device_id", "last_batch", "shard", "steps_per_epoch"),
        _BY_LOADER,
    ),
    **dict.fromkeys(("drop_last", "pad_last_batch"), _BY_LAST_BATCH),
    **dict.fromkeys(("shuffle", "random_shuffle", "seed"), "The order is a matter of the sampler."),
    "steps": "Steps belong to the PipelineDefinition.",
}
"""Of inputs with a sampler."""

OF_STREAMS: Mapping[str, str] = {
    **dict.fromkeys(("batch_size", "num_workers", "device_id"), _BY_LOADER),
    **dict.fromkeys(
        ("shuffle", "random_shuffle", "seed", "sampler"),
        "Videos are delivered in the order in which they are fed.",
    ),
    **dict.fromkeys(("shard", "shard_id", "num_shards"), "Each rank has a stream of its own: feed it its videos."),
    **dict.fromkeys(("filenames", "file_root", "file_list"), "Videos are fed: stream.feed(path)."),
    "no_copy": "Bytes are not copied; leave it out.",
    "device": "Pass `device_id` to the DataLoader.",
    "name": "Fields have names of their own, see the arguments that end with `_name`.",
    "preserve": _NOT_NEEDED,
}
"""Of streams of videos."""

OF_DEFINITIONS: Mapping[str, str] = {
    **dict.fromkeys(("steps", "transforms"), "The steps are the second argument, `preprocess_functors`."),
    **dict.fromkeys(
        ("batch_size", "num_workers", "num_threads", "device_id", "seed"),
        "Pass it to the DataLoader, or to get_dali_pipeline.",
    ),
    "sampler": "It belongs to the input: SamplerInputCallable(provider, sampler).",
}
"""Of definitions of pipelines."""

OF_LOADER: Mapping[str, str] = {
    "random_shuffle": "Use shuffle=True.",
    "batch_sampler": "Use `sampler` and `batch_size`.",
    **dict.fromkeys(("dataset", "provider", "definition"), "It is the first argument, `source`."),
    **dict.fromkeys(("drop_last", "pad_last_batch"), "Use `last_batch`: 'drop', 'pad', 'partial' or 'wrap'."),
    **dict.fromkeys(("shard_id", "num_shards"), "Use shard=(shard_id, num_shards), or shard='auto'."),
    **dict.fromkeys(("device", "pin_memory", "pin_memory_device"), "Use `device_id` for batches on a GPU."),
    "collate_fn": "DALI makes the batches; `post_process_func` is applied to each.",
    "prefetch_factor": "Use pipeline_arguments={'prefetch_queue_depth': 4}, or so.",
    "multiprocessing_context": "Use `start_method`.",
    "generator": "The seed of the order is one of the sampler, `seed` that of the draws of steps.",
    "persistent_workers": "Workers always stay until the loader is closed: leave it out.",
    "transforms": "Use `steps`.",
}
"""Of loaders."""


def explains_unknown_arguments(advice: Mapping[str, str]) -> Callable[[_Init], _Init]:
    """Decorate an ``__init__`` so that the error for an argument that it does not have says what to do instead.

    Args:
        advice: What to do instead, by the name of the argument. For other names, one that is similar is named.
    """

    def decorate(init: _Init) -> _Init:
        parameters = inspect.signature(init).parameters

        @functools.wraps(init)
        def checked_init(self: Any, /, *args: Any, **arguments: Any) -> None:
            for name in arguments:
                if name not in parameters:
                    raise _unknown(type(self).__name__, name, list(parameters), advice)
            init(self, *args, **arguments)

        return cast(_Init, checked_init)

    return decorate


def _unknown(owner: str, name: str, parameters: list[str], advice: Mapping[str, str]) -> Exception:
    hint = advice.get(name, "")
    if not hint:
        close = difflib.get_close_matches(name, parameters, 1)
        hint = f"Did you mean `{close[0]}`?" if close else "Its arguments are in its documentation."
    return error_that_is_also(SettingError, (TypeError,), f"`{name}` is not an argument of {owner}. {hint}")
