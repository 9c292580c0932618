"""Steps with a form for arrays, where spawned workers can import them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types
from support.providers import Panic
from support.steps import KeepsFormat

from accvlab.dali_pipeline_framework.draws import Draws, IntegerDraw, NormalDraw, RandomDraw, UniformDraw
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import PipelineStepBase
from accvlab.dali_pipeline_framework.processing_steps.wrappers.function_steps import ArrayStep

DT = types.DALIDataType


class Gain(PipelineStepBase):
    """Multiplies all gains by a draw, in both forms."""

    has_array_form = True

    def __init__(self, key: Any = "sample") -> None:
        self._key = key

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        return [UniformDraw("gain", 1, 2, key=self._key), IntegerDraw("one", 1, 2, key=self._key)]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        return self.arrays(data, {name: self.draw(name) for name in ("gain", "one")})

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        for path in data.find_all_occurrences("gain"):
            data.set_item_in_path(path, (data.get_item_in_path(path) + 1) * draws["gain"] * draws["one"])
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        for path in data_empty.find_all_occurrences("gain"):
            if data_empty.get_type_of_item_in_path(path) != DT.FLOAT:
                raise ValueError(f"{path}: must be FLOAT")
        return data_empty


class Renames(PipelineStepBase):
    """Takes a field away, and adds another one, with a normal draw of three numbers."""

    has_array_form = True

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        return [NormalDraw("noise", shape=(3,))]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        return self.arrays(data, {"noise": self.draw("noise")})

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        data.remove_field("pair")
        data.add_data_field("noise", DT.FLOAT)
        data["noise"] = draws["noise"] * 2
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        data_empty.remove_field("pair")
        data_empty.add_data_field("noise", DT.FLOAT)
        return data_empty


class InGraph(KeepsFormat):
    """Has a form for the graph only, and fails for an index."""

    def __init__(self, bad: int = -1) -> None:
        self._bad = bad

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        return [UniformDraw("shift", 0, 8)]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        size = fn.cast(data["index"] != self._bad, dtype=DT.INT32)
        one = fn.reshape(types.Constant(np.ones(1, np.float32), device="cpu"), shape=fn.stack(size))
        data["cameras"][0]["gain"] = data["cameras"][0]["gain"] + self.draw("shift") + one[0]
        return data


class Doubles(ArrayStep):
    """Doubles the index of a sample; array only. Does what it is told for one sample."""

    def __init__(self, does: str = "", at: int = 2) -> None:
        self._does = does
        self._at = at

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        index = data["index"]
        data["index"] = index + index
        if index == self._at:
            self._misbehave(data)
        return data

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        if not data_empty.has_child("index"):
            raise KeyError("index")
        return data_empty

    def _misbehave(self, data: SampleDataGroup) -> None:
        match self._does:
            case "raises":
                raise KeyError("no such thing")
            case "exits":
                raise SystemExit(3)
            case "panics":
                raise Panic
            case "dtype":
                data["pair"] = data["pair"].astype(np.float64)
            case "rank":
                data["cameras"][1]["gain"] = data["cameras"][1]["gain"][None]
            case "none":
                data["pair"] = None


class Unpicklable(Doubles):
    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
