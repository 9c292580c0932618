"""How large the packages are: lines of code per room, without blank lines, comments and docstrings.

python benchmarks/code_size.py [--by-room]
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[1]
_NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@attrs.define
class Size:
    """What was counted in one or several modules.

    Attributes:
        modules: Number of modules.
        code: Lines with code.
        imports: Lines of import statements, among them.
        docstrings: Lines of docstrings.
        comments: Comments.
        anys: How often ``Any`` is named.
        longest: Code lines of the longest function, and its name.
    """

    modules: int = 0
    code: int = 0
    imports: int = 0
    docstrings: int = 0
    comments: int = 0
    anys: int = 0
    longest: tuple[int, str] = (0, "")

    def __add__(self, other: Size) -> Size:
        sums = {
            name: getattr(self, name) + getattr(other, name)
            for name in ("modules", "code", "imports", "docstrings", "comments", "anys")
        }
        return Size(**sums, longest=max(self.longest, other.longest))


def size_of_module(path: Path) -> Size:
    """Count what a module holds."""
    text = path.read_text()
    tree = ast.parse(text)
    documentation = {line for each in _docstrings(tree) for line in _lines(each)}
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    code = {
        line for token in tokens if token.type not in _NOT_CODE for line in range(token.start[0], token.end[0] + 1)
    } - documentation
    imports = {
        line for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for line in _lines(node)
    }
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return Size(
        modules=1,
        code=len(code),
        imports=len(imports & code),
        docstrings=len(documentation),
        comments=sum(token.type == tokenize.COMMENT for token in tokens),
        anys=sum(token.type == tokenize.NAME and token.string == "Any" for token in tokens),
        longest=max(
            ((len(code.intersection(_lines(node))), f"{path.stem}.{node.name}") for node in functions),
            default=(0, ""),
        ),
    )


def _docstrings(tree: ast.Module) -> Iterator[ast.expr]:
    """Texts that stand alone: docstrings of modules, classes and functions, and of attributes."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value


def _lines(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def size_of_folder(folder: Path) -> Size:
    """Count what all modules in a folder hold together."""
    return sum((size_of_module(path) for path in sorted(folder.rglob("*.py"))), Size())


def _row(name: str, size: Size) -> str:
    per_100 = 100 / max(size.code, 1)
    return (
        f"{name:44} {size.modules:5} {size.code:7} {size.imports * per_100:8.1f} {size.docstrings * per_100:8.1f} "
        f"{size.comments * per_100:8.1f} {size.anys * per_100:5.1f}  {size.longest[0]} {size.longest[1]}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by-room", action="store_true", help="also a row for each room of the packages")
    by_room = parser.parse_args().by_room
    print(f"{'':44} files    code   per 100: imports, docs, comments, Any  longest function")
    whole = Size()
    for package in sorted(path for path in (ROOT / "accvlab").iterdir() if path.is_dir()):
        size = size_of_folder(package)
        whole += size
        print(_row(package.name, size))
        for room in sorted(path for path in package.iterdir() if path.is_dir()) if by_room else ():
            if any(room.rglob("*.py")):
                print(_row(f"  {room.name}", size_of_folder(room)))
    print(_row("packages together", whole))
    for name in ("tests", "benchmarks", "examples"):
        print(_row(name, size_of_folder(ROOT / name)))


if __name__ == "__main__":
    main()
