"""Make the pictures of the documentation: what each processing step does to a generated driving scene.

    python examples/driving_data/make_step_pictures.py                  all, into docs/_static/steps
    python examples/driving_data/make_step_pictures.py image_resizer    this one

Look at what changed before you commit it.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from step_pictures.gallery import PICTURES, save
from step_pictures.scene import Scene

_FOLDER = Path(__file__).resolve().parents[2] / "docs" / "_static" / "steps"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pictures; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="make_step_pictures.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="pages of steps (default: all)")
    parser.add_argument("--output", type=Path, default=_FOLDER, help="folder of the pictures")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(PICTURES))
    if unknown:
        parser.error(f"there are no pictures of {', '.join(unknown)}; there are: {', '.join(PICTURES)}")
    options.output.mkdir(parents=True, exist_ok=True)
    scene = Scene()
    for name in options.names or PICTURES:
        path = options.output / f"{name}.webp"
        save(PICTURES[name](scene), path)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
