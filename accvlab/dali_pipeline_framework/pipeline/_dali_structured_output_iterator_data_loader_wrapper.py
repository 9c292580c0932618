# SPDX-License-Identifier: Apache-2.0
"""A class that counts as another class without being set up by it."""

from __future__ import annotations

from typing import Any

from accvlab.dali_pipeline_framework.errors import NotSupportedError


def get_masked_as_type(iterator_class: type[Any], mask_class: type[Any]) -> type[Any]:
    """Make a subclass of both classes that behaves like ``iterator_class``.

    For `torch.utils.data.DataLoader` its documented attributes are there and tell about the pipeline. What
    else it inherits from the mask class would work on attributes that only that class's constructor sets, so
    it raises a `NotSupportedError`, which ``hasattr`` and ``getattr`` with a default understand.

    Args:
        iterator_class: `DALIStructuredOutputIterator` or a subclass of it.
        mask_class: Class for which ``isinstance`` shall be true.
    """
    masked = {
        name: _Unsupported(name, mask_class.__name__)
        for base in mask_class.__mro__[:-1]
        for name in vars(base)
        if not hasattr(object, name) and not hasattr(iterator_class, name) and name not in _PYTHON_NAMES
    }
    described = {name: property(getter) for name, getter in _LOADER_ATTRIBUTES.items()}

    def set_attribute(self: Any, name: str, value: Any) -> None:
        if name in masked or name in described:
            raise NotSupportedError(f"`{name}` cannot be changed: the pipeline is already set up.")
        object.__setattr__(self, name, value)

    namespace = {
        **masked,
        **described,
        "__init__": iterator_class.__init__,
        "__setattr__": set_attribute,
        "__module__": iterator_class.__module__,
        "__doc__": f"{iterator_class.__name__} that is also an instance of {mask_class.__name__}.",
    }
    return type(f"{iterator_class.__name__}As{mask_class.__name__}", (iterator_class, mask_class), namespace)


_PYTHON_NAMES = {
    "__annotations__",
    "__dict__",
    "__weakref__",
    "__orig_bases__",
    "__parameters__",
    "__slots__",
} | {
    "__class_getitem__",
    "__init_subclass__",
    "__annotate_func__",
    "__annotations_cache__",
    "__static_attributes__",
    "__firstlineno__",
}

_LOADER_ATTRIBUTES: dict[str, Any] = {
    "batch_size": lambda self: self._pipeline.max_batch_size,
    "num_workers": lambda self: self._pipeline.py_num_workers,
    "prefetch_factor": lambda self: self._pipeline.prefetch_queue_depth,
    "sampler": lambda self: None,
    "batch_sampler": lambda self: None,
    "generator": lambda self: None,
    "collate_fn": lambda self: None,
    "worker_init_fn": lambda self: None,
    "multiprocessing_context": lambda self: None,
    "pin_memory": lambda self: False,
    "pin_memory_device": lambda self: "",
    "drop_last": lambda self: True,
    "timeout": lambda self: 0,
    "persistent_workers": lambda self: True,
}


class _Unsupported:
    """Descriptor of an inherited attribute that does not work here."""

    def __init__(self, name: str, mask_name: str) -> None:
        self._name = name
        self._mask_name = mask_name

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        raise NotSupportedError(
            f"`{self._name}` of {self._mask_name} is not available: the batches come from a DALI pipeline, "
            f"which is only presented as a {self._mask_name}."
        )
