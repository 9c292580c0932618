"""The table in the page on chains of what may stand before what, from the declarations of the image steps.

Run this file to write it into the page.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nvidia.dali import types

from accvlab.dali_pipeline_framework import (
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageRange01Normalizer,
    ImageResizer,
    PipelineStepBase,
)
from accvlab.dali_pipeline_framework.errors import FormatError
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.pipeline.chain import chain_format
from accvlab.dali_pipeline_framework.sample_data import ImageContent, LeafFormat

sys.path.append(str(Path(__file__).resolve().parents[1]))  # where this is run as a script
from support.public_steps import PUBLIC_STEPS, STEPS_ON_IMAGES, StepCase

PAGE = Path(__file__).resolve().parents[2] / "docs" / "dali_pipeline_framework" / "chains.md"
BEGIN, END = "<!-- step orders: written by tests/docs/step_order_table.py -->", "<!-- end of step orders -->"

_TO_CHW = ImageMeanStdDevNormalizer("image", 120.0, 60.0, output_layout="CHW")
_BEFORE: dict[str, list[PipelineStepBase]] = {
    "nothing: a file": [],
    "ImageDecoder": [ImageDecoder("image", False)],
    "Range01": [ImageDecoder("image", False), ImageRange01Normalizer("image")],
    "MeanStdDev": [ImageDecoder("image", False), ImageMeanStdDevNormalizer("image", 120.0, 60.0)],
    "MeanStdDev to CHW": [ImageDecoder("image", False), _TO_CHW],
}
_RESIZED = StepCase(ImageResizer("image", output_hw=[4, 6], is_encoded=True), PUBLIC_STEPS["GridMasker"].samples)
CASES = {
    "ImageDecoder": PUBLIC_STEPS["ImageDecoder"],
    "ImageResizer, ImageResizeCropFlipper with `is_encoded`": _RESIZED,
    **{name: PUBLIC_STEPS[name] for name in sorted(STEPS_ON_IMAGES - {"AxesLayoutSetter", "VideoDecoder"})},
}


def table() -> str:
    """Return the table in Markdown."""
    rows = [["", *_BEFORE], ["---"] * (1 + len(_BEFORE))]
    for name, case in CASES.items():
        rows.append([name, *(_outcome(steps, case) for steps in _BEFORE.values())])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _outcome(steps: list[PipelineStepBase], case: StepCase) -> str:
    blueprint = SampleDataGroup()
    for (name,), leaf in case.samples[0].format.leaves.items():
        is_image = name == "image"
        content = ImageContent(is_encoded=True) if is_image else ImageContent()
        blueprint.add_data_field(name, types.DALIDataType.UINT8 if is_image else leaf.dtype, content=content)
    try:
        before = chain_format(blueprint, steps).format.at(("image",))
        after = chain_format(blueprint, [*steps, case.step]).format.at(("image",))
    except FormatError:
        return "refused"
    assert isinstance(before, LeafFormat)
    assert isinstance(after, LeafFormat)
    if before.content == after.content:
        return "yes"
    return f"yes: {after.content.describe().removeprefix('decoded, ')}"


def main() -> None:
    """Write the table into the page."""
    text = PAGE.read_text(encoding="utf-8")
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(f"{text[:start]}\n\n{table()}\n\n{text[end:]}", encoding="utf-8")


if __name__ == "__main__":
    main()
