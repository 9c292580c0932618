"""The table in the page on chains of what may stand before what, from the declarations of the image steps.

Run this file to write it into the page.
"""

from __future__ import annotations

from pathlib import Path

from nvidia.dali import types

from accvlab.dali_pipeline_framework.errors import FormatError
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.pipeline.chain import chain_format
from accvlab.dali_pipeline_framework.processing_steps import (
    AffineTransformer,
    GridMasker,
    HorizontalFlipper,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageRange01Normalizer,
    ImageResizeCropFlipper,
    ImageResizer,
    ImageToTileSizePadder,
    PhotoMetricDistorter,
    PipelineStepBase,
    TensorSizeAdder,
)
from accvlab.dali_pipeline_framework.sample_data import ImageContent, LeafFormat

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
_STRETCH = AffineTransformer.ResizingMode.STRETCH
STEPS: dict[str, PipelineStepBase] = {
    "ImageDecoder": ImageDecoder("image", False),
    "ImageResizer, ImageResizeCropFlipper with `is_encoded`": ImageResizer(
        "image", output_hw=[4, 6], is_encoded=True
    ),
    "ImageResizer": ImageResizer("image", output_hw=[4, 6]),
    "ImageResizeCropFlipper": ImageResizeCropFlipper("image", output_hw=[4, 6], scale_range=(0.5, 1.0)),
    "AffineTransformer": AffineTransformer([4, 6], _STRETCH, None, "image"),
    "HorizontalFlipper": HorizontalFlipper("image"),
    "PhotoMetricDistorter": PhotoMetricDistorter("image", [-0.1, 0.1], [-9, 9], [0.5, 1.5], [0.5, 1.5]),
    "GridMasker": GridMasker("image"),
    "ImageRange01Normalizer": ImageRange01Normalizer("image"),
    "ImageMeanStdDevNormalizer": ImageMeanStdDevNormalizer("image", 0.0, 1.0),
    "ImageToTileSizePadder": ImageToTileSizePadder("image", 32),
    "TensorSizeAdder": TensorSizeAdder("image", "_hw"),
}


def table() -> str:
    """Return the table in Markdown."""
    rows = [["", *_BEFORE], ["---"] * (1 + len(_BEFORE))]
    for name, step in STEPS.items():
        rows.append([name, *(_outcome([*before, step]) for before in _BEFORE.values())])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _outcome(steps: list[PipelineStepBase]) -> str:
    blueprint = SampleDataGroup()
    blueprint.add_data_field("image", types.DALIDataType.UINT8, content=ImageContent(is_encoded=True))
    try:
        before = chain_format(blueprint, steps[:-1]).format.at(("image",))
        after = chain_format(blueprint, steps).format.at(("image",))
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
