"""Write what the pages show of the code into them, so that GitHub shows it too.

A block of a page says what it is made of; Sphinx makes ``autodoc`` blocks from the code itself, see ``conf.py``::

    <!-- autodoc
    .. autoclass:: accvlab.dali_pipeline_framework.DataLoader
       :members:
    -->
    ... written by this script ...
    <!-- end of autodoc -->

An ``include`` block names a file of the repository, and a class or function (``path.py: main``) or the lines from
one to another (``path.py: first ... last``). A ``summary`` block has lines such as ``loader.md: a.DataLoader``,
and gives a table of the first lines of docstrings. A ``toctree`` is a comment as well: only Sphinx needs it.

    python docs/make_pages.py [PAGE ...]   # write the blocks
    python docs/make_pages.py --check      # name the pages that are not current
    python docs/make_pages.py --count      # count the words that are written by hand
"""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

DOCS = Path(__file__).resolve().parent
_BLOCK = re.compile(r"<!-- (autodoc|include|summary)\n(.*?)\n-->\n(.*?)<!-- end of \1 -->\n", re.DOTALL)
_TABLE = re.compile(r"<!-- (?:begin of the t|step o).*?<!-- end of [^>]*-->|<!-- table: .*?\|\n(?!\|)", re.DOTALL)
_FENCE = re.compile(r"^ *(`{3,})[^`\n]*\n.*?^ *\1$", re.DOTALL | re.MULTILINE)
_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields|Example):$", re.MULTILINE)


def pages() -> list[Path]:
    """All pages of the documentation."""
    return sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)


def for_sphinx(page: str) -> str:
    """Replace what this script writes into a page by directives of which Sphinx makes the same."""
    page = re.sub(r"^<!-- (toctree)\n(.*?)\n-->$", r"```{\1}\n\2\n```", page, flags=re.DOTALL | re.MULTILINE)
    return _BLOCK.sub(
        lambda it: f"{_imports(it[2])}\n\n```{{eval-rst}}\n{it[2]}\n```\n" if it[1] == "autodoc" else it[3], page
    )


def current(page: str) -> str:
    """Write the blocks of a page."""

    def written(block: re.Match[str]) -> str:
        kind, made_of, _ = block.groups()
        before = _FENCE.sub("", _BLOCK.sub("", page[: block.start()]))
        makers = {"autodoc": _autodoc, "include": _include, "summary": _summary}
        text = makers[kind](made_of, re.findall(r"^(#+) (.*)$", before, re.MULTILINE))
        parts = (
            f"<!-- {kind}\n{made_of}\n-->\n<!-- fmt: off -->",
            text,
            f"<!-- fmt: on -->\n<!-- end of {kind} -->\n",
        )
        return "\n\n".join(parts)

    return _BLOCK.sub(written, page)


def words_by_hand(page: str) -> int:
    """Count the words outside of code and of what is generated; the targets of links are not counted."""
    text = re.sub(r"<!--.*?-->", "", _FENCE.sub("", _TABLE.sub("", _BLOCK.sub("", page))), flags=re.DOTALL)
    return len(re.findall(r"\w[\w'.-]*", re.sub(r"\]\([^)]*\)", "]", text)))


def _include(text: str, headings: list[tuple[str, str]]) -> str:
    name, _, wanted = text.partition(": ")
    code = (DOCS.parent / name).read_text(encoding="utf-8")
    first, _, last = wanted.partition(" ... ")
    if last:
        return _fence(
            re.search(rf"^ *{re.escape(first)}.*?^ *{re.escape(last)}[^\n]*", code, re.DOTALL | re.MULTILINE)[0],
            "text",
        )  # type: ignore[index]
    (node,) = (each for each in ast.parse(code).body if getattr(each, "name", None) == wanted)
    first_line = min(each.lineno for each in (node, *getattr(node, "decorator_list", ())))
    return _fence("\n".join(code.splitlines()[first_line - 1 : node.end_lineno]))


def _summary(text: str, headings: list[tuple[str, str]]) -> str:
    rows = ["| | |", "|---|---|"]
    for page, name in (line.split(": ") for line in text.splitlines()):
        first = (inspect.getdoc(_found(name)) or "").partition("\n\n")[0].replace("\n", " ")
        rows.append(f"| [{name.rpartition('.')[2]}]({page}) | {_words(first).replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


def _imports(text: str) -> str:
    """How to import what a block shows, as far as a package exports it: from the shortest name of a package."""
    names: dict[str, list[str]] = {}
    for kind, path, _ in _directives(text):
        room, _, name = path.rpartition(".")
        parts = room.split(".")
        packages = [".".join(parts[:number]) for number in range(2, len(parts) + 1)]
        exporting = [each for each in packages if name in dir(importlib.import_module(each))]
        if kind in ("autoclass", "autofunction") and exporting and hasattr(_found(exporting[0]), "__path__"):
            names.setdefault(exporting[0], []).append(name)
    lines = [f"from {package} import {_in_lines([*dict.fromkeys(each)])}" for package, each in names.items()]
    return _fence("\n".join(lines)) if lines else ""


def _in_lines(names: list[str]) -> str:
    line = ", ".join(names)
    return line if len(line) <= 50 else "(\n" + "".join(f"    {name},\n" for name in names) + ")"


def _autodoc(text: str, headings: list[tuple[str, str]]) -> str:
    level, parts = len(headings[-1][0]) + 1, [_imports(text)]
    for kind, name, options in _directives(text):
        found, title = _found(name), name.rpartition(".")[2]
        if kind == "automodule":
            parts.append(markdown(inspect.getdoc(found)))
            for each in () if "no-members" in options else vars(found).values():
                is_own = getattr(each, "__module__", None) == name and each.__name__ not in options.get(
                    "exclude-members", ""
                )
                if is_own and each.__doc__ and not each.__name__.startswith("_"):
                    parts += [
                        f"{'#' * level} {each.__name__}",
                        *_described(each, level, {**options, "members": ""}),
                    ]
            continue
        parts += [] if headings[0][1] == title else [f"{'#' * level} {title}"]  # the page is named after it
        if kind == "autodata":
            doc = _attribute_docs(_found(name.rpartition(".")[0])).get(title)
            parts += [_fence(f"{title} = {_type(found)}"), markdown(doc)]
        else:
            parts += _described(found, level, options)
    return "\n\n".join(part for part in parts if part)


def _directives(text: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Kind, dotted name and options of each directive of autodoc."""
    module = ""
    for directive in re.split(r"^\.\. ", text, flags=re.MULTILINE)[1:]:
        kind, name = re.match(r"(\w+):: (\S+)", directive).groups()  # type: ignore[union-attr]
        if kind == "currentmodule":
            module = f"{name}."
        else:
            yield (
                kind,
                name if name.startswith("accvlab.") else module + name,
                dict(re.findall(r":([\w-]+): ?(.*)", directive)),
            )


def _found(name: str) -> Any:
    """Import what a dotted name stands for."""
    room, _, last = name.rpartition(".")
    try:
        return getattr(_found(room), last) if room else importlib.import_module(name)
    except AttributeError:
        return importlib.import_module(name)


@functools.cache
def _tree(path: str) -> ast.Module:
    return ast.parse(Path(path).read_text(encoding="utf-8"))


def _attribute_docs(owner: Any) -> dict[str, str]:
    """Docstrings that follow the attributes of a module or class."""
    try:
        body = _tree(inspect.getsourcefile(owner)).body  # `inspect.getsource` would read it anew for each class
        for name in owner.__qualname__.split(".") if inspect.isclass(owner) else ():
            body = next(each.body for each in body if isinstance(each, ast.ClassDef) and each.name == name)
    except (TypeError, StopIteration):  # it is built in, or made by a function
        return {}
    docs = {}
    for statement, after in itertools.pairwise(body):
        if (
            isinstance(statement, ast.Assign | ast.AnnAssign)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            docs[ast.unparse(target)] = inspect.cleandoc(str(after.value.value))
    return docs


def _described(found: Any, level: int, options: dict[str, str]) -> list[str]:
    """Signature, docstring and members of a class or a function."""
    parts = [_signature(found, found.__name__)]
    if "show-inheritance" in options and inspect.isclass(found):
        parts.append(f"Bases: {', '.join(f'`{base.__name__}`' for base in found.__bases__)}")
    parts.append(markdown(inspect.getdoc(found)))
    if not inspect.isclass(found):
        return parts
    if inspect.isfunction(found.__init__) and not is_generated(inspect.getdoc(found.__init__)):
        parts.append(markdown(inspect.getdoc(found.__init__)))
    wanted = {
        key: re.findall(r"\w+", options.get(key, "")) for key in ("members", "special-members", "private-members")
    }
    named = [name for names in wanted.values() for name in names]
    until = options.get("inherited-members")
    bases = (
        ()
        if until is None
        else found.__mro__[1 : [base.__name__ for base in found.__mro__].index(until or "object")]
    )
    seen = {"__init__", *re.findall(r"\w+", options.get("exclude-members", ""))}
    for owner in (found, *bases):
        docs = _attribute_docs(owner)
        for name in {**vars(owner), **docs}:
            is_shown = name in named or (
                "members" in options and not wanted["members"] and not name.startswith("_")
            )
            if is_shown and name not in seen and (text := _member(owner, name, docs.get(name))):
                parts += [f"{'#' * min(level + 1, 6)} {name}", text]
                seen.add(name)
    return parts


def _member(owner: type, name: str, attribute_doc: str | None) -> str:
    member = inspect.getattr_static(owner, name, None)
    if inspect.isclass(member):
        return "\n\n".join(_described(member, 6, {}))
    function = getattr(member, "fget", None) or getattr(member, "func", None)  # properties, also cached ones
    if function is not None:
        signature = _fence(f"{name}: {_type(inspect.signature(function).return_annotation)}  # property")
        return f"{signature}\n\n{markdown(inspect.getdoc(member))}" if member.__doc__ else ""
    function = getattr(member, "__func__", member)
    if inspect.isfunction(function):
        doc = inspect.getdoc(getattr(owner, name))
        return f"{_signature(function, name)}\n\n{markdown(doc)}" if doc else ""
    return markdown(attribute_doc)


def is_generated(doc: str | None) -> bool:
    """Whether no person wrote the docstring of a constructor: that of attrs, or that of `object`."""
    return (doc or "").startswith(("Method generated by attrs", "Initialize self."))


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"ForwardRef\('([^']*)'\)", r"\1", text).replace("typing.", "")


class _Written:
    """A default that is written as its source text, not as its `repr`."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def with_readable_defaults(found: Any, signature: inspect.Signature) -> inspect.Signature:
    """Write enum members by name, and what the factories of attrs make as the call that makes it."""
    fields = {field.alias: field for field in attrs.fields(found)} if attrs.has(found) else {}
    parameters = []
    for each in signature.parameters.values():
        default = each.default
        if default is attrs.NOTHING:
            made_by = getattr(fields[each.name].default, "factory", None)
            name = getattr(made_by, "__name__", "<lambda>")
            default = _Written({"dict": "{}", "list": "[]", "<lambda>": "..."}.get(name, f"{name}()"))
        elif isinstance(default, enum.Enum):
            default = _Written(str(default))
        elif default is not each.empty and repr(default).startswith("<"):  # a function, an object of a class
            default = _Written("...")
        parameters.append(each.replace(default=default))
    return signature.replace(parameters=parameters)


def _signature(found: Any, name: str) -> str:
    """The signature, with a line for each argument where it is long."""
    if inspect.isclass(found) and issubclass(found, BaseException | enum.Enum | dict):
        return ""
    arguments = []
    signature = with_readable_defaults(found, inspect.signature(found))
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    for number, each in enumerate(parameters):
        earlier = {other.kind for other in parameters[:number]}
        arguments += (
            ["*"]
            if each.kind is each.KEYWORD_ONLY and not earlier & {each.KEYWORD_ONLY, each.VAR_POSITIONAL}
            else []
        )
        text = str(each.replace(annotation=each.empty, default=each.empty))
        text += "" if each.annotation is each.empty else f": {_type(each.annotation)}"
        arguments.append(text if each.default is each.empty else f"{text} = {each.default!r}")
    has_end = not inspect.isclass(found) and signature.return_annotation is not signature.empty
    end = f" -> {_type(signature.return_annotation)}" if has_end else ""
    line = f"{name}({', '.join(arguments)}){end}"
    return _fence(
        line if len(line) <= 90 else f"{name}(\n" + "".join(f"    {each},\n" for each in arguments) + f"){end}"
    )


def _fence(code: str, language: str = "py") -> str:
    return f"```{language}\n{textwrap.dedent(code).strip(chr(10))}\n```"


def markdown(doc: str | None) -> str:
    """Turn a docstring in Google form into Markdown."""
    text, *sections = _SECTION.split(doc or "")
    parts = [_paragraphs(text)]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        inside, after = re.match(r"((?:\n| [^\n]*)*)(.*)", body, re.DOTALL).groups()  # type: ignore[union-attr]
        inside = textwrap.dedent(inside).strip("\n")
        if title in ("Args", "Attributes", "Raises"):
            items = map(_item, re.split(r"^(?=\S)", inside, flags=re.MULTILINE)[1:])
            parts.append(f"**{'Arguments' if title == 'Args' else title}**\n\n" + "\n".join(items))
        else:
            parts.append(f"**{title}**\n\n{_paragraphs(inside)}")
        parts.append(_paragraphs(after))
    return "\n\n".join(filter(None, parts))


def _item(entry: str) -> str:
    name, _, text = entry.partition(":")
    return f"- `{name}`:{textwrap.indent(_paragraphs(inspect.cleandoc(text)), '  ')[1:]}"


def _table(found: re.Match[str]) -> str:
    """Turn a simple table of reStructuredText, with or without a head, into one of Markdown."""
    starts = [column.start() for column in re.finditer("=+", found[1])]
    rows: list[list[str]] = []
    for line in (found[2] if found[3] is None else found[2] + found[3]).splitlines():
        cells = [line[first:end].strip() for first, end in itertools.pairwise([*starts, None])]
        if rows and not cells[0]:  # the row above goes on
            cells = [" ".join(filter(None, both)) for both in zip(rows.pop(), cells, strict=True)]
        rows.append(cells)
    head = [[""] * len(starts)] if found[3] is None else []
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in head + rows]
    return "\n".join([lines[0], "|" + "---|" * len(starts), *lines[1:]])


def _paragraphs(text: str) -> str:
    """Turn literal blocks, examples and tables into Markdown, and the markup of words as well."""
    text = re.sub(r"^(=+(?: +=+)+)\n((?:.*\n)*?)\1$(?:\n((?:.+\n)+?)\1$)?", _table, text, flags=re.MULTILINE)
    parts = []
    pattern = r"^(>>>.*\n?(?:.+\n?)*)|^( *)(.*)::\n((?:\n|\2 +.*\n?)+)"
    last = 0
    for found in re.finditer(pattern, text, re.MULTILINE):
        parts.append(_words(text[last : found.start()]))
        last = found.end()
        if found[1]:
            parts.append(f"{_fence(found[1], 'pycon')}\n\n")
        else:
            is_code = found[3].startswith((".. code-block", "Example"))
            words = "" if found[3].startswith("..") else _words(f"{found[2]}{found[3]}:") + "\n\n"
            parts.append(words + textwrap.indent(_fence(found[4], "py" if is_code else "text"), found[2]) + "\n\n")
    return re.sub(r"\n{3,}", "\n\n", "".join([*parts, _words(text[last:])])).strip()


def _words(text: str) -> str:
    text = re.sub(r":(?:py:)?(?:class|func|meth|attr|data|exc|mod|obj):`~?[\w.]*?(\w+)`", r"`\1`", text)
    text = re.sub(r"`([^`<]+) <(http[^>]+)>`_", r"[\1](\2)", text.replace("``", "`"))
    return "".join(
        part if part.startswith("`") else part.replace("<", "&lt;") for part in re.split(r"(`[^`]*`)", text)
    )


def main(arguments: list[str]) -> int:
    """Run the script; see the text at its top."""
    paths = [Path(name).resolve() for name in arguments if not name.startswith("--")] or pages()
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    if "--count" in arguments:
        counted = sorted((words_by_hand(text), str(path.relative_to(DOCS))) for path, text in texts.items())
        print(
            "\n".join(
                f"{number:6} {page}" for number, page in [*counted, (sum(number for number, _ in counted), "all")]
            )
        )
        return 0
    changed = {path: new for path, text in texts.items() if (new := current(text)) != text}
    print("\n".join(str(path.relative_to(DOCS)) for path in changed))
    if "--check" in arguments:
        return 1 if changed else 0
    for path, text in changed.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
