# SPDX-License-Identifier: Apache-2.0
"""A subclass of PyTorch's `DataLoader` that does not run its constructor, for ``isinstance`` checks."""

from __future__ import annotations

from typing import Any

from ..errors import NotSupportedError


def get_masked_as_type(iterator_class: type[Any], mask_class: type[Any]) -> type[Any]:
    """Make a subclass of both classes that behaves like ``iterator_class``.

    The documented attributes of `torch.utils.data.DataLoader` are set and describe the pipeline; setting
    any attribute is allowed and changes nothing else. See `counted_as` for other attributes.

    Args:
        iterator_class: `DALIStructuredOutputIterator` or a subclass of it.
        mask_class: Class for which ``isinstance`` shall be true.
    """

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        iterator_class.__init__(self, *args, **kwargs)
        self.__dict__.update(_loader_attributes(self._pipeline))

    own = {
        "__init__": __init__,
        "__module__": iterator_class.__module__,
        "__doc__": f"{iterator_class.__name__} that is also an instance of {mask_class.__name__}.",
    }
    return counted_as(mask_class, f"{iterator_class.__name__}As{mask_class.__name__}", iterator_class, own)


def counted_as(mask_class: type[Any], name: str, own_class: type[Any], namespace: dict[str, Any]) -> type[Any]:
    """Make a subclass of both classes that behaves like ``own_class``, with more of its own in a namespace.

    What is inherited from the mask class would work on attributes that only its own constructor sets, so getting
    it raises a `NotSupportedError`, which ``hasattr`` and ``getattr`` with a default understand.
    """
    masked = {
        attribute: _Unsupported(attribute, mask_class.__name__)
        for base in mask_class.__mro__[:-1]
        for attribute in vars(base)
        # Python itself looks the former up.
        if not attribute.startswith("__") and not hasattr(own_class, attribute)
    }
    namespace = {**masked, "__setattr__": object.__setattr__, **namespace}
    return type(name, (own_class, mask_class), namespace)


def _loader_attributes(pipeline: Any) -> dict[str, Any]:
    """What a PyTorch data loader with the work of this pipeline would say of itself."""
    return {
        "batch_size": pipeline.max_batch_size,
        "num_workers": pipeline.py_num_workers,
        "prefetch_factor": pipeline.prefetch_queue_depth,
        **dict.fromkeys(("drop_last", "in_order", "persistent_workers"), True),
        "pin_memory": False,
        "pin_memory_device": "",
        "timeout": 0,
        **dict.fromkeys(("sampler", "batch_sampler", "generator", "collate_fn")),
        **dict.fromkeys(("worker_init_fn", "multiprocessing_context")),
    }


class _Unsupported:
    """Descriptor of an inherited attribute that does not work here."""

    def __init__(self, name: str, mask_name: str) -> None:
        self._name = name
        self._mask_name = mask_name

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        problem = f"`{self._name}` of {self._mask_name} is not available: the batches come from a DALI pipeline"
        raise NotSupportedError(f"{problem}, which is only presented as a {self._mask_name}.")
