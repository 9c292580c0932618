"""One step, one sample, one line; and how samples are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from nvidia.dali import types
from support.array_samples import sample_of
from support.arrays import encoded_image, gradient
from support.providers import NumberProvider
from support.random_steps import filled
from support.steps import KeepsFormat

from accvlab.dali_pipeline_framework.draws import IntegerDraw, RandomDraw, UniformDraw
from accvlab.dali_pipeline_framework.errors import FormatError, GraphError, SettingError, SourceError
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    DataGroupArrayWithNameElementsAppliedStep,
    ImageDecoder,
    LambdaStep,
)
from accvlab.dali_pipeline_framework.testing import run_step, sample_differences

DT = types.DALIDataType


def on_value(function: Callable[[Any], Any], name: str = "value") -> LambdaStep:
    return LambdaStep(function, input_names=name, output_types={name: DT.FLOAT})


DOUBLE = on_value(lambda value: value * 2.0)


def sample(value: Any, text: str = "some text") -> SampleDataGroup:
    return filled({"value": (DT.FLOAT, value), "text": (DT.STRING, text)})


class TestRunStep:
    def test_one_sample(self) -> None:
        run = run_step(DOUBLE, sample([1, 2, 4]))
        assert run.output == sample([2, 4, 8])
        assert run.output["value"].dtype == np.float32
        assert run.draws == {}

    def test_a_batch_of_ragged_samples(self) -> None:
        samples = [sample([[1, 2]], ""), sample(np.zeros((0, 2)), "longer"), sample([[4, 5], [6, 7]], "l")]
        runs = run_step(DOUBLE, samples)
        assert [run.output["value"].tolist() for run in runs] == [[[2, 4]], [], [[8, 10], [12, 14]]]
        assert [run.output["text"] for run in runs] == ["", "longer", "l"]
        assert [run.output["value"].shape for run in runs] == [(1, 2), (0, 2), (2, 2)]

    def test_layouts(self) -> None:
        image = filled({"image": (DT.UINT8, encoded_image(gradient(4, 6)))})
        run = run_step(ImageDecoder("image", False), image)
        assert run.layouts == {"image": "HWC"}
        assert run.output["image"].shape == (4, 6, 3)

        class NeedsLayout(KeepsFormat):
            def _process(self, data: SampleDataGroup) -> SampleDataGroup:
                data["cameras"][0]["image"] = fn.transpose(data["cameras"][0]["image"], perm=[2, 0, 1])
                return data

        rig = sample_of({"cameras": [{"image": gradient(4, 6)}]})
        run = run_step(NeedsLayout(), rig, layouts={("cameras", 0, "image"): "HWC"})
        assert run.layouts == {"cameras[0].image": "CHW"}
        with pytest.raises(FormatError, match=r"cameras\[1\]: the sample has no such data field"):
            run_step(NeedsLayout(), rig, layouts={("cameras", 1): "HWC"})

    @pytest.mark.gpu
    def test_on_the_gpu(self) -> None:
        run = run_step(DOUBLE, sample([1, 2, 4]), device_id=0, on_gpu=["value"])
        assert run.output == sample([2, 4, 8])

    def test_errors_are_those_of_the_pipeline(self) -> None:
        with pytest.raises(FormatError, match="LambdaStep"):
            run_step(on_value(abs, "no"), sample(1))
        with pytest.raises(GraphError, match="To blame:\n  - sample 1"):
            run_step(on_value(lambda value: fn.slice(value, 2, 1, axes=[0])), [sample([1, 2, 3]), sample([1])])
        unset = sample(1)
        unset["value"] = None
        with pytest.raises(SourceError, match="value: is not set"):
            run_step(DOUBLE, unset)

    @pytest.mark.parametrize(
        ("samples", "text"),
        [
            ([], "At least one sample must be given"),
            ({"value": 1}, "`samples` must be a filled SampleDataGroup, or a list of them, got dict"),
            (DOUBLE, "or a list of them, got LambdaStep.* The step is the first argument"),
            ([sample(1), {"value": 1}], "Sample 1 must be a SampleDataGroup, got dict"),
            ([sample(1), filled({"value": (DT.FLOAT, 1)})], "sample 1 differs from sample 0:\n  - text: missing"),
        ],
    )
    def test_samples_that_do_not_go_together(self, samples: Any, text: str) -> None:
        with pytest.raises(SettingError, match=text):
            run_step(DOUBLE, samples)


class Noise(KeepsFormat):
    """Draws an offset for the group that it is applied to."""

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        return [IntegerDraw("offset", 0, 10), UniformDraw("gain", 1, 2, shape=(2,), key="rig")]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        data["gain"] = data["gain"] * fn.reductions.sum(self.draw("gain")) + self.draw("offset")
        return data


class TestDraws:
    STEP = DataGroupArrayWithNameElementsAppliedStep(Noise(), "cameras")

    def gains(self, draws: Any, number: int = 2) -> list[float]:
        cameras = run_step(self.STEP, NumberProvider().get_data(number), draws=draws).output["cameras"]
        return [cameras[0]["gain"].item(), cameras[1]["gain"].item()]

    def test_are_told_and_taken(self) -> None:
        provider = NumberProvider()
        runs = run_step(self.STEP, [provider.get_data(1), provider.get_data(2)], seed=8)
        names = {"Noise[0]/cameras[0]/offset", "Noise[0]/cameras[1]/offset", "Noise[0]/gain"}
        assert [{*run.draws} for run in runs] == [names, names]
        again = run_step(self.STEP, provider.get_data(2), draws=runs[1].draws)
        assert sample_differences(again.output, runs[1].output) == []
        assert run_step(self.STEP, provider.get_data(2), seed=8).draws != runs[1].draws  # it is sample 0 then

    def test_by_the_names_of_the_step(self) -> None:
        assert self.gains({"offset": 4, "gain": [1.0, 1.5]}) == [2 * 2.5 + 4, 2.5 * 2.5 + 4]
        both = {"offset": 4, "Noise[0]/cameras[1]/offset": 5, "gain": [1.0, 1.5]}
        assert self.gains(both) == [2 * 2.5 + 4, 2.5 * 2.5 + 5]

    @pytest.mark.parametrize(
        ("draws", "text"),
        [
            ({"offset": 4}, r"`draws` lacks the draw 'gain' of Noise, 'Noise\[0\]/gain'"),
            (
                {"offset": 4, "gain": [1, 1], "x": 0},
                r"does not declare 'x' \(or .* only\). Declared draws: Noise\[0\]/cam",
            ),
            ({"offset": 4.5, "gain": [1, 1]}, "offset must be whole numbers, got 4.5"),
            ([{"offset": 4, "gain": [1, 1]}] * 2, "draws for each of the 1 samples, got 2"),
            ({"offset": 10, "gain": [1, 1]}, r"`draws`: offset must lie in \[0, 9\], got 10"),
            ({"offset": 4, "gain": 1.0}, r"`draws`: gain must have shape \(2,\), got \(\)"),
        ],
    )
    def test_that_do_not_fit(self, draws: Any, text: str) -> None:
        with pytest.raises(SettingError, match=text):
            self.gains(draws)


@pytest.mark.parametrize(
    ("expected", "found", "tolerance", "lines"),
    [
        ([1, np.nan], [1, np.nan], 0, []),
        ([1, np.nan], [1, np.nan], 0.1, []),
        ([1, 2], [1, 2.05], 0.1, []),
        ([1, 2], [1, 3], 0, ["value: 1 of 2 values differ, the first at [1]: expected 2.0, found 3.0"]),
        (1, 3, 1, ["value: expected 1.0, found 3.0"]),
        ([1, 2], [1], 0, ["value: expected float32 (2,), found float32 (1,)"]),
        ([0.0], [-0.0], 0, ["value: differs in signs of zeros or in bits of NaN"]),
        ([1, np.nan], [1, 2], 9, ["value: 1 of 2 values differ, the first at [1]: expected nan, found 2.0"]),
        ([np.nan, 1], [np.nan, 2], 0, ["value: 1 of 2 values differ, the first at [1]: expected 1.0, found 2.0"]),
    ],
)
def test_differences_of_values(expected: Any, found: Any, tolerance: float, lines: list[str]) -> None:
    assert sample_differences(sample(expected), sample(found), tolerance=tolerance) == lines


def test_differences_of_bits_formats_and_fields_that_are_not_set() -> None:
    flags = [filled({"flag": (DT.BOOL, [True, value])}) for value in (True, False)]
    [line] = sample_differences(*flags)
    assert line == "flag: 1 of 2 values differ, the first at [1]: expected True, found False"
    assert sample_differences(sample(1), flags[0])[0] == "  - value: missing"
    unset = sample(1)
    unset["value"] = None
    assert sample_differences(sample(1), unset) == ["value: is set in only one of the two"]
    assert sample_differences(unset, unset.get_copy()) == []
