"""Odd and broken image files: each is delivered or treated as failed, as it is to be expected of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from odd_images import OddImages
from support.child_processes import run_process
from support.shared_data import shared_data

import accvlab.dali_pipeline_framework as package
from accvlab.dali_pipeline_framework import DataLoader, FaultPolicy, ImageDecoder
from accvlab.dali_pipeline_framework.faults import read_quarantine

# Where decoding on arrays (libjpeg-turbo, OpenCV) differs from DALI.
ONLY_BY_DALI = {
    "broken_35_corrupt.jpg",
    "broken_13_rgb_1bit.tiff",
    "TIFF-RGBA_02_tiff_16bit_RGBa.tiff",
    "TIFF-RGBA_03_tiff_strip_planar_16bit_RGBa.tiff",
    "TIFF-CMYK_03_tiff_tiled_cmyk_jpeg.tif",
    "TIFF-RGBA_05_tiff_wrong_bits_per_sample.tiff",
}
ONLY_ON_ARRAYS = {
    "TIFF-L_05_8bit.s.tif",
    "TIFF-I_01_16_bit_binary_pgm.tiff",
    "TIFF-P_05_multipage_multiple_frame_loop.tiff",
}
OTHER_SHAPE_ON_ARRAYS = {"TIFF-1_04_crash-74d2a78403a5a59db1fb0a2b8735ac068a75f6e3.tif"}

FORMS = ["workers", pytest.param("graph", marks=pytest.mark.wide)]


@pytest.fixture(scope="module")
def provider() -> OddImages:
    return OddImages(shared_data("odd"))


def expected_to_fail(provider: OddImages, run: str) -> set[str]:
    names = {row["file"] for number, row in enumerate(provider.rows) if not provider.is_decodable(number)}
    names = names if run == "graph" else (names - ONLY_ON_ARRAYS) | ONLY_BY_DALI
    return names & {row["file"] for row in provider.rows}


def loaded(provider: OddImages, run: str, faults: Any, batch_size: int = 25) -> tuple[list[Any], set[str]]:
    """Planned index, delivered index and image of each sample; the files that failed."""
    samples = []
    with DataLoader(
        provider,
        batch_size,
        steps=[ImageDecoder("image", use_device_mixed=False)],
        run=run,
        num_workers=0,
        output_type="numpy",
        ragged="list",
        context_name="place",
        faults=faults,
    ) as loader:
        for batch in loader:
            for slot, image in enumerate(batch["image"]):
                planned = int(batch["place"]["batch"][slot]) * batch_size + int(batch["place"]["slot"][slot])
                samples.append((planned, int(batch["index"][slot]), image))
        return samples, {sample.file for sample in loader.failed_samples}


@pytest.mark.parametrize("run", FORMS)
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_each_file_is_delivered_or_has_failed_as_expected(provider: OddImages, run: str, policy: str) -> None:
    samples, failed = loaded(provider, run, policy)
    expected = expected_to_fail(provider, run)
    assert failed == expected
    for planned, index, image in samples:
        name = provider.rows[planned]["file"]
        if name in expected:
            assert policy != "skip"
            assert provider.rows[index]["file"] not in expected
            continue
        assert index == planned
        if name not in ONLY_ON_ARRAYS | OTHER_SHAPE_ON_ARRAYS:
            assert image.shape == provider.shape(planned)
    assert len(samples) == len(provider.rows) - (len(expected) if policy == "skip" else 0)


@pytest.mark.parametrize(
    ("subject", "run"),
    [("loader_on_arrays", "workers"), pytest.param("provider", "workers", marks=pytest.mark.wide)],
)
def test_lint_finds_what_fails_while_training(provider: OddImages, subject: str, run: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", package.__name__, "lint", f"odd_images:{subject}"]
    here, root = Path(__file__).parent, Path(package.__file__).parents[3]
    done = run_process(
        [*command, "--output", tmp_path / "failed.jsonl", "--workers", "2"],
        env={"PYTHONPATH": f"{here}:{here.parents[1]}:{root}", "ODD_IMAGES": str(provider.folder), "PATH": ""},
        timeout=120,
    )
    expected = expected_to_fail(provider, run)
    entries = read_quarantine(str(tmp_path / "failed.jsonl"))
    assert {entry.file for entry in entries} == expected
    assert done.returncode == 1
    assert f"{len(expected)} samples have failed" in done.stderr
    samples, failed = loaded(
        provider, run, FaultPolicy(samples="replace", exclude=tmp_path / "failed.jsonl", max_failed=0)
    )
    assert (len(samples), failed) == (len(provider.rows), set())
