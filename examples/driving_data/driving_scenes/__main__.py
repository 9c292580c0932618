"""Command line: ``python -m driving_scenes OUT_DIR --sequences 5 --seed 7``."""

import argparse
import sys
from collections.abc import Sequence

import attrs

from driving_scenes.errors import DrivingScenesError
from driving_scenes.generation import ensure_scenes
from driving_scenes.nuscenes_export import export_nuscenes
from driving_scenes.settings import SceneSettings


def main(arguments: Sequence[str] | None = None) -> int:
    """Generate the data set, or find it there already; returns the exit status."""
    defaults = attrs.asdict(SceneSettings())
    parser = argparse.ArgumentParser(prog="driving_scenes", description="Generate small driving scenes.")
    parser.add_argument("out_dir", help="folder of the data set")
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
    parser.add_argument("--overwrite", action="store_true", help="replace a data set with other settings")
    parser.add_argument(
        "--nuscenes", metavar="FOLDER", help="write the same data in the format of nuScenes as well"
    )
    parser.add_argument(
        "--frames-per-keyframe", type=int, default=1, help="of nuScenes: those between are sweeps (default: 1)"
    )
    chosen = vars(parser.parse_args(arguments))
    nuscenes, stride = chosen.pop("nuscenes"), chosen.pop("frames_per_keyframe")
    try:
        scenes = ensure_scenes(chosen.pop("out_dir"), **chosen)
        if nuscenes:
            export_nuscenes(scenes, nuscenes, frames_per_keyframe=stride)
    except DrivingScenesError as error:
        print(error, file=sys.stderr)
        return 1
    print(scenes)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
