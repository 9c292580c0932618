"""The wheel in empty environments: each version of Python with each wheel of DALI.

    python tests/matrix.py [--python 3.12 ...] [--dali cuda130 ...] [--torch VERSION]

For each pair: an environment without a compiler, the installation that the page on it describes, the examples of
the README, and a few quick tests, all on the CPU. Interpreters are those of the search path, of pyenv and of uv; a
version of which there is none is skipped. Environments are made one at a time: each takes gigabytes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
WHEELS = ("cuda120", "cuda130")
FOR_TESTS = ("pytest", "pytest-timeout", "hypothesis", "psutil", "pillow")
TESTS = (
    "dali_pipeline_framework/workers/test_preloading.py",
    "dali_pipeline_framework/workers/test_start_methods.py",
    "dali_pipeline_framework/sampling/test_samplers.py",
    "driving_data/datasets/test_index_cache.py",
)


def interpreter(version: str) -> str | None:
    """Path of an interpreter of a version; None where there is none."""
    candidates = [shutil.which(f"python{version}")]
    candidates += map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))
    uv = shutil.which("uv")
    if uv is not None:
        found = subprocess.run([uv, "python", "find", version], capture_output=True, text=True, check=False)
        candidates.append(found.stdout.strip() if found.returncode == 0 else None)
    check = f"import sys; assert sys.version_info[:2] == {tuple(map(int, version.split('.')))}"
    for each in candidates:
        if each and subprocess.run([each, "-c", check], capture_output=True, check=False).returncode == 0:
            return each
    return None


def installations(wheel: Path, dali: str, torch: str | None) -> Iterator[list[str]]:
    """Arguments of ``pip install``, one call after the other."""
    others = [*FOR_TESTS, *([f"torch=={torch}"] if torch else [])]
    if dali == "cuda120":
        yield [str(wheel), *others]
        return
    yield [f"nvidia-dali-{dali}>=2.4,<3", "attrs", "cachetools", "filelock", "cloudpickle", *others]
    yield ["--no-deps", str(wheel)]


def examples_of_readme() -> list[str]:
    """The Python fences of the README that need no package beyond those that are always installed."""
    fences = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return [fence for fence in fences if "import torch" not in fence and "/data/" not in fence]


def try_pair(python: str, wheel: Path, dali: str, torch: str | None) -> str:
    """Try a version of Python with a wheel of DALI; returns what was found, empty where something has failed."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
        inside = str(folder / "venv/bin/python")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment |= {"CC": "/bin/false", "CXX": "/bin/false"}

        def run(*arguments: str) -> str:
            done = subprocess.run(
                [inside, *arguments], cwd=folder, env=environment, capture_output=True, text=True
            )
            if done.returncode:
                raise RuntimeError(f"{' '.join(arguments)[:80]}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
            return done.stdout.strip()

        try:
            for arguments in installations(wheel, dali, torch):
                run("-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments)
            for number, example in enumerate(examples_of_readme()):
                (folder / f"example_{number}.py").write_text(example)
                run(f"example_{number}.py")
            shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(ROOT / "pyproject.toml", folder)
            tests = [f"tests/{name}" for name in TESTS]
            tested = run("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests).splitlines()[-1]
            about = "import nvidia.dali, numpy; print('DALI', nvidia.dali.__version__, 'NumPy', numpy.__version__)"
            return f"{run('-c', about)}{f' PyTorch {torch}' if torch else ''}: {tested}"
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return ""


def main(command_line: Sequence[str] | None = None) -> int:
    """Try all pairs; returns how many have failed."""
    parser = argparse.ArgumentParser(description="The wheel in empty environments.")
    parser.add_argument("--python", nargs="+", default=PYTHONS, help="versions of Python")
    parser.add_argument("--dali", nargs="+", default=WHEELS, choices=WHEELS, help="wheels of DALI")
    parser.add_argument("--torch", help="version of PyTorch to install beside it")
    options = parser.parse_args(command_line)
    num_failed = 0
    with tempfile.TemporaryDirectory() as place:
        build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", place, str(ROOT)]
        subprocess.run(build, check=True)
        (wheel,) = Path(place).glob("*.whl")
        for version in options.python:
            python = interpreter(version)
            for dali in options.dali if python else ():
                began = time.monotonic()
                found = try_pair(python or "", wheel, dali, options.torch)
                num_failed += not found
                seconds = time.monotonic() - began
                print(f"Python {version}, {dali}: {found or 'FAILED'} ({seconds:.0f} s)", flush=True)
            if python is None:
                print(
                    f"Python {version}: skipped, no interpreter in the search path, of pyenv or of uv", flush=True
                )
    return num_failed


if __name__ == "__main__":
    sys.exit(main())
