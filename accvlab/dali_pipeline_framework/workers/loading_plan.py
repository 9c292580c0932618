# SPDX-License-Identifier: Apache-2.0
"""All on which the loading of batches depends, and how it gets to the processes that load."""

from __future__ import annotations

import pickle
from typing import Any

import attrs

from ..draws.keyed_draws import SampleSeeds
from ..draws.random_draws import DrawSource
from ..limits.file_limits import all_limits
from ..sample_data import GroupFormat
from .packing import TransportLayout
from .pickling import Dumps, Loads, pickle_for_worker
from .process_setup import WorkerSetup
from .samples import SampleSteps

UNPICKLING_INPUT, UNPICKLING_STEPS, RUNNING_INIT_FN = -2, -3, -4
SETUP_STAGES = {
    UNPICKLING_INPUT: "unpickling the input",
    UNPICKLING_STEPS: "unpickling the steps",
    RUNNING_INIT_FN: "running `worker_init_fn`",
}


@attrs.define(eq=False)
class LoadingPlan:
    """All on which the loading of batches depends; a value that can be sent to other processes.

    Attributes:
        source: The user's input: a callable or an iterable.
        blueprint: Format of its samples.
        pickler: How it is pickled.
        seeds: Of the global generators.
        draws: Random draws that travel with the samples; None if there are none.
        setup: What makes workers different from each other.
        steps: Steps that are applied to each sample; None for none.
        layout: Which outputs are made of a batch; set once the graph is defined.
        tries_alone: Whether samples of a batch that fails as a whole are tried one by one.
        checks_images: Whether image files that are sent are checked for damage that DALI does not notice.
    """

    source: Any
    blueprint: GroupFormat
    pickler: tuple[Dumps, Loads]
    seeds: SampleSeeds
    draws: DrawSource | None = None
    setup: WorkerSetup = attrs.field(factory=WorkerSetup)
    steps: SampleSteps | None = None
    layout: TransportLayout = attrs.field(factory=TransportLayout)
    checks_images: bool = False
    tries_alone: bool = False

    @property
    def is_callable(self) -> bool:
        """Whether batches can be loaded in any order."""
        return callable(self.source)

    @property
    def batch_size(self) -> int:
        """Samples per batch."""
        return self.seeds.batch_size

    @property
    def name(self) -> str:
        """Class of the input, for messages."""
        return type(self.source).__name__

    def pickled(self) -> bytes:
        """Pickle it in parts: one that cannot be unpickled is then an error of that part.

        Raises:
            SourcePicklingError: A part cannot be pickled.
        """
        dumps, loads = self.pickler

        def part(value: object, what: str, name: str) -> bytes | None:
            return None if value is None else pickle_for_worker(value, what, name, dumps)

        source = part(self.source, "The input", self.name)
        steps = part(self.steps, "The steps that run in the workers", "chain")
        init_fn = part(self.setup.init_fn, "`worker_init_fn`", "worker_init_fn")
        setup = attrs.evolve(self.setup, init_fn=None)
        rest = attrs.evolve(self, source=None, steps=None, setup=setup, pickler=(pickle.dumps, loads))
        return pickle.dumps((all_limits(), rest, self.name, source, steps, init_fn))
