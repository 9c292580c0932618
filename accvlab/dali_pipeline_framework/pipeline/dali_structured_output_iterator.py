# SPDX-License-Identifier: Apache-2.0
"""Iterate over a pipeline and get nested samples."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from nvidia.dali.pipeline import Pipeline

from ..checks import choice
from ..engine.structured_pipeline import StructuredPipeline
from ..errors import ClosedError, OutputError, SettingError, error_that_is_also
from ..sample_data import SampleDataGroup
from ..sample_data.formats import nested_dictionary
from ..sources.input_adapter import InputAdapter
from ..threads import give_lock

if TYPE_CHECKING:
    from .output_conversion import OutputType, RaggedArgument


class DALIStructuredOutputIterator:
    """Delivers the batches of a pipeline as nested dicts (or `SampleDataGroup` objects).

    Data fields are PyTorch tensors (or NumPy arrays) with the batch as first axis. They stay valid as
    long as they are held; those on a GPU are copies, see ``gpu_views``. Text fields are lists of ``str``.

    Each ``for`` loop is an epoch: starting a new one, also after a ``break``, starts the next epoch from its
    beginning. (An endless input has no epochs: a new loop continues where the last one stopped.)

    Closing the iterator, or deleting it, closes the pipeline and ends its worker processes::

        with DALIStructuredOutputIterator(None, pipeline) as loader:
            for epoch in range(2):
                for batch in loader:
                    train(batch["image"])
    """

    lock: Any  # held by the thread that makes a batch

    class SimpleIterator(Iterator[Any]):
        """Iterates over one epoch. All iterators of an object share its pipeline."""

        def __init__(self, obj: DALIStructuredOutputIterator) -> None:
            """Start an epoch of ``obj``."""
            self._obj = obj
            self._obj.reset()

        def __next__(self) -> Any:
            """Get the next batch; several threads take turns, and each batch goes to one of them."""
            obj = self._obj
            with obj.lock:
                return obj.next_batch()

        def reset(self) -> None:
            """Start the next epoch."""
            self._obj.reset()

        def __len__(self) -> int:
            """Number of batches per epoch."""
            return len(self._obj)

    def __init__(
        self,
        num_batches_in_epoch: int | None = None,
        pipeline: Pipeline | None = None,
        sample_data_structure_blueprint: SampleDataGroup | None = None,
        contained_dataset: Any = None,
        dali_generic_iterator_class: Callable[[Any, list[str]], Any] | None = None,
        convert_sample_data_group_to_dict: bool = True,
        post_process_func: Callable[[Any], Any] | None = None,
        *,
        output_type: OutputType = "torch",
        ragged: RaggedArgument = "raise",
        stack_arrays: bool = False,
        gpu_views: bool = False,
    ) -> None:
        """Create the iterator.

        Args:
            num_batches_in_epoch: What ``len`` returns. None: the number that the input of the pipeline knows.
            pipeline: Pipeline from `PipelineDefinition.get_dali_pipeline` (or another DALI pipeline whose
                outputs fit the blueprint).
            sample_data_structure_blueprint: Format of the output. None: the format that the pipeline knows.
            contained_dataset: What the property `dataset` returns; None for this object itself.
            dali_generic_iterator_class: Class of a DALI iterator to use instead of reading the pipeline
                directly, e.g. ``nvidia.dali.plugin.jax.DALIGenericIterator``. It is called with the pipeline
                and the list of flat field names.
            convert_sample_data_group_to_dict: Whether to deliver nested dicts.
            post_process_func: Applied to each batch; its result is delivered.
            output_type: ``"torch"`` for PyTorch tensors, on the device on which the pipeline made them, or
                ``"numpy"`` for NumPy arrays.
            ragged: Handling of samples of different shapes. ``"raise"``: all fields are arrays with the
                batch as first axis, and different shapes an error; ``"list"``: all fields are lists of one array
                per sample, in every batch. Or a dict of these by field, e.g. ``{"boxes": "list"}``: a name means
                all fields and groups of that name, a tuple is a path, and other fields have ``"raise"``.
            stack_arrays: Whether to stack the elements of an array, if all have the same format:
                ``batch["cameras"]["image"]`` of shape ``(batch, cameras, ...)``, instead of
                ``batch["cameras"][0]["image"]`` and so on. Where a field is folded in the graph (see
                `PipelineDefinition`), nothing is copied for it. With ``ragged="list"``, a field is a list with one
                entry per sample, which is a list with one array per element (e.g. per camera).
            gpu_views: Whether tensors of PyTorch on a GPU are views of DALI's memory. By default they are copies
                in memory of PyTorch; copying takes microseconds. While views exist, an error of CUDA in the model
                ends the process without a traceback, and PyTorch's statistics of memory do not include the views.

        Raises:
            SettingError: An argument is missing or has an unknown value.
            ClosedError: The pipeline was closed.
        """
        if isinstance(num_batches_in_epoch, Pipeline):
            advice = "Write DALIStructuredOutputIterator(pipeline=...), or pass None as the first argument."
            raise SettingError(f"The first argument is `num_batches_in_epoch`, got a pipeline. {advice}")
        if pipeline is None:
            raise SettingError("`pipeline` must be given.")
        give_lock(self)
        self._pipeline = pipeline
        self._structured = pipeline if isinstance(pipeline, StructuredPipeline) else None
        self._blueprint = self._checked_blueprint(sample_data_structure_blueprint)
        self._format = self._blueprint.format
        self._num_batches = num_batches_in_epoch
        self._dataset = contained_dataset
        self._to_dict = convert_sample_data_group_to_dict
        self._post_process = post_process_func
        self._is_closed = False
        self._is_mid_epoch = False  # of the foreign iterator, like the next one
        self._has_ended = False
        self._foreign_iterator: Any = None
        if dali_generic_iterator_class is None:
            self._set_up_conversion(output_type, ragged, stack_arrays, gpu_views)
        elif stack_arrays:
            raise SettingError("`stack_arrays` does not go with `dali_generic_iterator_class`.")
        else:
            from .output_conversion import fields_as_lists

            choice(output_type, "output_type", ("numpy", "torch"))  # not used here, but checked
            fields_as_lists(ragged, self._format)
            self._foreign_iterator = dali_generic_iterator_class(pipeline, [*self._blueprint.field_names_flat])
        if self._structured is not None:  # last: a failure above leaves the pipeline as it was
            self._structured.attach_iterator()
            self._release = weakref.finalize(self, self._structured.detach_iterator)
            self._release.atexit = False  # pipelines are closed then, see `StructuredPipeline`

    def _checked_blueprint(self, given: SampleDataGroup | None) -> SampleDataGroup:
        if given is not None:
            return given.get_empty_like_self()
        if self._structured is not None:
            return self._structured.output_blueprint
        rule = "`sample_data_structure_blueprint` must be given for a pipeline that does not know its format"
        unknown = "one that was not made by a PipelineDefinition, or was made with debug=True"
        raise SettingError(f"{rule}: {unknown}.")

    def _set_up_conversion(
        self, output_type: OutputType, ragged: RaggedArgument, stack_arrays: bool, gpu_views: bool
    ) -> None:
        """Read the pipeline directly: make the converter of its outputs, and build it."""
        from ..engine.transport import Delivery  # as late as they are needed: imports take time
        from .output_conversion import OutputConverter

        pipeline, structured = self._pipeline, self._structured
        delivery = Delivery.of_plain_outputs([leaf.numpy_dtype for leaf in self._format.flat_leaves])
        advice, is_bound = "", False
        if structured is not None:
            delivery, advice = structured.delivery, structured.ragged_advice
            is_bound = structured.may_bind_outputs and bool(pipeline.exec_dynamic)
            self._require_fields(len(delivery.places))
            if stack_arrays:
                structured.order_by_sample()
        self._convert = OutputConverter(
            output_type,
            self._format,
            delivery,
            ragged,
            stack_arrays,
            must_copy=not pipeline.exec_dynamic,
            advice=advice,
            device_id=pipeline.device_id,
            is_bound=is_bound,
            is_fed=structured is not None and structured.fed is not None,
            gpu_views=gpu_views,
        )
        if stack_arrays:
            self._format = self._convert.format
            self._blueprint = SampleDataGroup.from_format(self._format)
        self._stream, self._device = self._convert.stream, self._convert.device
        pipeline.build()

    # --- iteration --------------------------------------------------------------------------------

    def __iter__(self) -> SimpleIterator:
        """Start the next epoch."""
        return self.SimpleIterator(self)

    def reset(self) -> None:
        """Start the next epoch from its beginning, also in the middle of one."""
        self._require_open()
        with self.lock:
            if self._foreign_iterator is not None:
                self._reset_foreign_iterator()
            elif self._structured is not None:
                self._structured.restart_epoch()
            else:
                self._pipeline.reset()

    def _reset_foreign_iterator(self) -> None:
        # DALI's iterators fetch a batch ahead, so what the pipeline has delivered says nothing.
        if self._is_mid_epoch and self._structured is not None:
            if not InputAdapter(self._structured.data_input).has_epochs:
                return
            with contextlib.suppress(StopIteration):
                while True:
                    next(self._foreign_iterator)
            self._is_mid_epoch, self._has_ended = False, True
        if self._has_ended:
            self._foreign_iterator.reset()
            self._has_ended = False

    def _next_of_foreign_iterator(self) -> SampleDataGroup:
        try:
            outputs = next(self._foreign_iterator)
        except StopIteration:
            self._is_mid_epoch, self._has_ended = False, True
            raise
        self._is_mid_epoch = True
        # DALI's iterators deliver a list with one dict per pipeline, except the one for JAX: a dict.
        outputs = [outputs] if isinstance(outputs, Mapping) else outputs
        sample = self._blueprint.get_empty_like_self()
        sample.set_data_from_dali_generic_iterator_output(outputs, 0)
        return sample

    def next_batch(self) -> Any:
        """Get the next batch of the epoch.

        Raises:
            StopIteration: The epoch has ended; `reset` starts the next one.
        """
        if self._is_closed:
            self._require_open()
        pipeline = self._structured
        if pipeline is None or self._foreign_iterator is not None:
            return self._foreign_batch()
        began, fed = perf_counter_ns(), pipeline.fed
        with self._device:
            try:
                outputs = pipeline.run_graph() if self._stream is None else pipeline.run_graph(self._stream())
            except StopIteration:
                if self._is_closed:  # by another thread, which has ended the wait
                    self._require_open()
                raise
            ran = perf_counter_ns()
            values = self._convert(outputs if fed is None else fed.receive(outputs))
        if fed is not None:
            work = fed.note_delivered(len(values[0]) if values else 0)
            pipeline.times.work = pipeline.times.work.plus(work)
        result: Any = nested_dictionary(self._format, values) if self._to_dict else self._filled(values)
        times = pipeline.times
        times.run_ns += ran - began
        times.conversion_ns += (converted := perf_counter_ns()) - ran
        if self._post_process is not None:
            result = self._processed(self._post_process, result)
            times.post_process_ns += perf_counter_ns() - converted
        times.num_samples += len(values[0]) if values else pipeline.max_batch_size
        return result

    def _result(self) -> tuple[Any, Exception | None]:
        """Get the next batch, or the error in place of it."""
        try:
            return self.next_batch(), None
        except Exception as error:
            return None, self._closed_error() if self._is_closed else error  # closed by another thread

    def _foreign_batch(self) -> Any:
        """A batch of an iterator of DALI, or of a pipeline that was not made by a definition."""
        if self._foreign_iterator is None:
            outputs = self._pipeline.run()
            self._require_fields(len(outputs))
            values = self._convert(outputs)
            result: Any = nested_dictionary(self._format, values) if self._to_dict else self._filled(values)
        else:
            sample = self._next_of_foreign_iterator()
            result = sample.to_dictionary() if self._to_dict else sample
        return result if self._post_process is None else self._processed(self._post_process, result)

    @staticmethod
    def _processed(post_process: Callable[[Any], Any], batch: Any) -> Any:
        try:
            return post_process(batch)
        except StopIteration as error:  # passed on, it would end the epoch silently
            rule = "`post_process_func` raised StopIteration"
            raise error_that_is_also(OutputError, [RuntimeError], rule) from error

    def _filled(self, values: Sequence[object]) -> SampleDataGroup:
        sample = self._blueprint.get_empty_like_self()
        sample.set_data(values)
        return sample

    def _require_fields(self, num_fields: int) -> None:
        if num_fields != self._format.num_leaves:
            problem = f"The pipeline has {num_fields} outputs"
            advice = "Use the blueprint of PipelineDefinition.check_and_get_output_data_structure()."
            raise SettingError(f"{problem}, but the blueprint has {self._format.num_leaves} data fields. {advice}")

    def __len__(self) -> int:
        """Number of batches per epoch.

        Raises:
            TypeError: ``num_batches_in_epoch`` was not given, and the input does not know the number.
        """
        num_batches = self._num_batches
        if num_batches is None and self._structured is not None:
            num_batches = self._structured.num_batches_read
            if num_batches is None:
                num_batches = InputAdapter(self._structured.data_input).num_batches_here(0)
        if num_batches is None:
            problem = "The number of batches per epoch is not known"
            advice = "Pass `num_batches_in_epoch`."
            raise TypeError(f"{problem}: the input does not have it (it may be endless). {advice}")
        return num_batches

    # --- closing ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the pipeline: end its worker processes and free their memory.

        A pipeline over which there are other iterators is closed with the last of them. Batches that were
        delivered stay valid. Closing a second time does nothing.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if not self.lock.acquire(blocking=False):  # another thread makes a batch
            if self._structured is not None:
                self._structured.end_wait()
            self.lock.acquire()
        try:
            self._foreign_iterator = None
            if self._structured is not None:
                self._release()
        finally:
            self.lock.release()

    def _require_open(self) -> None:
        if self._is_closed:
            raise self._closed_error()

    @staticmethod
    def _closed_error() -> ClosedError:
        return ClosedError("The iterator was closed. Create a new pipeline and a new iterator over it.")

    def __enter__(self) -> DALIStructuredOutputIterator:
        """Return itself."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Close the iterator; after an error of CUDA without destroying DALI's pipeline, which would abort."""
        if self._structured is not None:
            self._structured.leave_after(error)
        self.close()

    # --- access -----------------------------------------------------------------------------------

    @property
    def sample_data_structure_blueprint(self) -> SampleDataGroup:
        """Format of the output, as an empty copy."""
        return self._blueprint.get_empty_like_self()

    @property
    def internal_iterator(self) -> Any:
        """The object that delivers flat batches: the pipeline, or an iterator of the passed DALI class."""
        return self._pipeline if self._foreign_iterator is None else self._foreign_iterator

    @property
    def dataset(self) -> Any:
        """The ``contained_dataset`` that was given, else this object."""
        return self if self._dataset is None else self._dataset

    @classmethod
    def CreateAsDataLoaderObject(cls, *args: Any, **kwargs: Any) -> Any:
        """Create an iterator that is also an instance of `torch.utils.data.DataLoader`.

        For training code that checks ``isinstance(loader, DataLoader)``. Attributes such as ``batch_size`` and
        ``num_workers`` describe the pipeline; methods without a counterpart raise `NotSupportedError`.

        Args:
            *args: Same as for the class.
            **kwargs: Same as for the class.

        Raises:
            SettingError: As for the class; also when PyTorch is not installed.
        """
        try:
            from torch.utils.data import DataLoader
        except ImportError as error:
            problem = "To count as a DataLoader of PyTorch needs PyTorch"
            advice = "Install it (pip install torch), or use DALIStructuredOutputIterator itself."
            raise SettingError(f"{problem}, which is not installed. {advice}") from error

        from ._dali_structured_output_iterator_data_loader_wrapper import get_masked_as_type

        return get_masked_as_type(cls, DataLoader)(*args, **kwargs)
