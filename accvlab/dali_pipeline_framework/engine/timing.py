# SPDX-License-Identifier: Apache-2.0
"""Where the time of a pipeline goes: sums over its batches."""

from __future__ import annotations

import attrs

from ..workers.messages import Work


@attrs.define
class StageTimes:
    """Sums over the batches of a pipeline; they only grow.

    Attributes:
        input_ns: Time to hand over inputs to the graph, with waiting for them, and with loading where this process
            loads.
        run_ns: Time until outputs of the graph were there, with ``input_ns``.
        conversion_ns: Time to make tensors or arrays of outputs.
        post_process_ns: Time in ``post_process_func``.
        num_samples: Samples that were delivered.
        work: What was done to load the batches that were delivered, as their workers have sent it with them.
    """

    input_ns: int = 0
    run_ns: int = 0
    conversion_ns: int = 0
    post_process_ns: int = 0
    num_samples: int = 0
    work: Work = attrs.field(factory=Work)
