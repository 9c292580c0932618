"""Make small changes to the two packages, one at a time, and report which of them their tests do not notice.

Each change is made in a copy of the repository, where the tests of the changed room run until one fails.
The results are added to a file: the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import contextlib
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGES = "dali_pipeline_framework", "driving_data"  # in `accvlab`; their tests are in folders of the same names
DOORS = {"cluster", "inputs", "internal_helpers", "operators_impl", "extension"}
# Where the tests are not (only) in the folder of the room's name; "" for modules in no room.
FOLDERS = {
    "": ["test_checks.py", "test_wrong_settings.py", "sources/test_unknown_arguments.py", "ledgers", "testing"],
    "operators": [
        *("operators", "internal_helpers", "operators_impl", "processing_steps", "testing/test_data_set_lint.py")
    ],
    "draws": [
        *("draws", "pipeline/test_draws_in_pipelines.py", "processing_steps/test_array_steps_in_graph.py"),
        "testing/test_check_step.py",
    ],
    "faults": ["faults", "loader/test_sample_policies.py"],
    "engine": ["engine", "loader/test_sample_policies.py"],
    "sources": [
        *(
            "sources",
            "loader/test_loader_state.py",
            "loader/test_given_orders.py",
            "pipeline/test_existing_code.py",
        )
    ],
    "ledgers.py": ["ledgers"],
    "object_commands.py": ["test_command_line.py", "steps/test_steps_without_names.py"],
    "contract": ["contract", "steps/test_steps_without_names.py"],
}
REVERSED = ast.Compare, ast.UnaryOp  # what is changed to its opposite by itself
OTHER = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
}  # fmt: skip


class Mutant(NamedTuple):
    path: Path  # from the root of the repository
    old: ast.expr
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.old.lineno}:{self.old.col_offset}: {ast.unparse(self.old)}  ->  {self.new}"

    def text(self) -> str:
        lines = (ROOT / self.path).read_bytes().splitlines(keepends=True)
        before = b"".join(lines[: self.old.lineno - 1]) + lines[self.old.lineno - 1][: self.old.col_offset]
        after = lines[self.old.end_lineno - 1][self.old.end_col_offset :] + b"".join(lines[self.old.end_lineno :])
        return (before + f"({self.new})".encode() + after).decode()

    def tests(self) -> list[str]:
        package, room = self.path.parts[1:3]
        own = f"test_{room}" if room.endswith(".py") else room
        folder = ROOT / "tests" / package
        found = [folder / name for name in FOLDERS.get(room, [own] if (folder / own).exists() else FOLDERS[""])]
        found = [path for path in found if path.exists()]
        paths = [path for name in found for path in ([name] if name.suffix else sorted(name.rglob("test_*.py")))]
        paths.sort(key=lambda path: self.path.stem not in path.read_text())  # those first that name the module
        return [str(path.relative_to(ROOT)) for path in paths]


def changes(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Expressions below a node, each with what is to replace it; none in annotations and messages."""
    match node:
        case ast.Raise() | ast.Assert() | ast.If(test=ast.Name("TYPE_CHECKING")) | ast.keyword("strict"):
            return
        case ast.JoinedStr() | ast.Return(value=ast.JoinedStr()) | ast.BinOp(ast.Constant(value=str() | bytes())):
            return
        case ast.Compare(ops=[op]):
            yield node, ast.unparse(ast.Compare(node.left, [OTHER[type(op)]()], node.comparators))
        case ast.BoolOp():
            yield node, ast.unparse(ast.BoolOp(OTHER[type(node.op)](), node.values))
        case ast.BinOp() if type(node.op) in OTHER:
            yield node, ast.unparse(ast.BinOp(node.left, OTHER[type(node.op)](), node.right))
        case ast.UnaryOp(op=ast.Not()):
            yield node, ast.unparse(node.operand)
        case ast.Constant(value=bool()):
            yield node, str(not node.value)
        case ast.Constant(value=int() | float()):
            yield node, str(node.value + 1)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not isinstance(test, REVERSED):
            yield test, f"not ({ast.unparse(test)})"
        case ast.Return(value=ast.expr()) if ast.unparse(node.value) != "None":
            yield node.value, "None"
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from changes(child)


def all_mutants(part_of_path: str) -> list[Mutant]:
    found = [path for package in PACKAGES for path in sorted((ROOT / "accvlab" / package).rglob("*.py"))]
    paths = [path.relative_to(ROOT) for path in found]
    paths = [path for path in paths if path.parts[2] not in DOORS and part_of_path in str(path)]
    return [Mutant(path, *change) for path in paths for change in changes(ast.parse((ROOT / path).read_bytes()))]


def noticed_by(mutant: Mutant, copy: Path, limit_s: float) -> str:
    """The test that fails; "time" where the tests take too long; "" where all pass."""
    (copy / mutant.path).write_text(mutant.text())
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests()]
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command, cwd=copy, env=environment, stdout=-1, stderr=-2, text=True, start_new_session=True
    )
    try:
        lines = process.communicate(timeout=limit_s)[0].splitlines()
    except subprocess.TimeoutExpired:
        return "time"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.copy2(ROOT / mutant.path, copy / mutant.path)
    if process.returncode == 0:
        return ""
    return next((line for line in lines if line.startswith(("FAILED", "ERROR"))), "the tests did not begin")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=150, help="how many changes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--only", default="", metavar="TEXT", help="change files with this text in their path")
    parser.add_argument("--limit", type=float, default=900, metavar="SECONDS", help="for the tests of one change")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "mutants.jsonl")
    arguments = parser.parse_args()
    mutants = all_mutants(arguments.only)
    mutants = random.Random(arguments.seed).sample(mutants, min(arguments.count, len(mutants)))
    arguments.results.parent.mkdir(exist_ok=True)
    arguments.results.touch()
    known = dict(json.loads(line) for line in arguments.results.read_text().splitlines())
    copies: queue.SimpleQueue[Path] = queue.SimpleQueue()

    def run(mutant: Mutant) -> None:
        copy = copies.get()
        noticed = noticed_by(mutant, copy, arguments.limit)
        copies.put(copy)
        known[str(mutant)] = noticed
        with arguments.results.open("a") as file:
            file.write(json.dumps([str(mutant), noticed]) + "\n")
        print(f"{'noticed' if noticed else 'NOT NOTICED'}  {mutant}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.jobs):
            ignored = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", "_build")
            copies.put(shutil.copytree(ROOT, Path(folder, str(number)), ignore=ignored))
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as executor:
            list(executor.map(run, [mutant for mutant in mutants if str(mutant) not in known]))
    for how, noticed in (("not noticed", ""), ("with tests that took too long", "time")):
        found = [str(mutant) for mutant in mutants if known[str(mutant)] == noticed]
        print(f"\n{len(found)} of {len(mutants)} changes {how}:", *found, sep="\n  ")


if __name__ == "__main__":
    main()
