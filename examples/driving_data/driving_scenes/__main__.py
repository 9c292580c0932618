"""Command line: ``python -m driving_scenes OUT_DIR --sequences 5 --seed 7``."""

import argparse
import sys
from collections.abc import Sequence

import attrs

from driving_scenes.errors import DrivingScenesError
from driving_scenes.generation import generate_scenes
from driving_scenes.nuscenes_export import export_nuscenes
from driving_scenes.settings import SceneSettings


def main(arguments: Sequence[str] | None = None) -> int:
    """Write scenes in the format of nuScenes; returns the exit status."""
    defaults = attrs.asdict(SceneSettings())
    parser = argparse.ArgumentParser(prog="driving_scenes", description="Generate small driving scenes.")
    parser.add_argument("out_dir", help="folder of the data set, which must be free")
    options = (
        ("--sequences", "num_sequences", int, 1, "number of sequences"),
        ("--frames", "frames_per_sequence", int, 2, "smallest and largest number of frames"),
        ("--image-hw", "image_hw", int, 2, "image height and width in pixels"),
        ("--seed", "seed", int, 1, "equal seeds give equal scenes"),
        ("--jpeg-quality", "jpeg_quality", int, 1, "1 to 95"),
        ("--rate-hz", "keyframe_rate_hz", float, 1, "frames per second"),
        ("--traffic", "traffic_density", float, 1, "factor on the number of objects"),
    )
    for flag, name, kind, count, text in options:
        nargs = count if count > 1 else None
        help_text = f"{text} (default: %(default)s)"
        parser.add_argument(flag, dest=name, type=kind, nargs=nargs, default=defaults[name], help=help_text)
    parser.add_argument(
        "--frames-per-keyframe", type=int, default=1, help="frames between keyframes are sweeps (default: 1)"
    )
    chosen = vars(parser.parse_args(arguments))
    root, stride = chosen.pop("out_dir"), chosen.pop("frames_per_keyframe")
    try:
        print(export_nuscenes(generate_scenes(**chosen), root, frames_per_keyframe=stride))
    except DrivingScenesError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
