"""Tables of the docs that tests measure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[2]


@attrs.frozen
class PageTable:
    """A table in a page, between comments that name the script that writes it.

    Attributes:
        page: The page, below `docs`.
        script: The script, below `tests`.
        columns: Heads of the columns.
    """

    page: str
    script: str
    columns: Sequence[str]

    def rows(self) -> list[list[str]]:
        """The cells of each row, as the page has them."""
        table = self._parts()[1].strip()
        lines = [line for line in table.splitlines() if line.startswith("|")]
        assert lines[:2] == self._head()
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]

    def write(self, rows: Sequence[Sequence[str]], below: str = "") -> None:
        """Put rows into the page, and lines below them."""
        before, _, after = self._parts()
        table = "\n".join([*self._head(), *(f"| {' | '.join(row)} |" for row in rows)])
        text = f"{before}{self._begin}\n{table}\n\n{below}{_END}{after}"
        self._path.write_text(text, encoding="utf-8")

    @property
    def _path(self) -> Path:
        return ROOT / "docs" / self.page

    @property
    def _begin(self) -> str:
        return f"<!-- begin of the table of tests/{self.script} -->"

    def _head(self) -> list[str]:
        return [f"| {' | '.join(self.columns)} |", "|---" * len(self.columns) + "|"]

    def _parts(self) -> tuple[str, str, str]:
        before, rest = self._path.read_text(encoding="utf-8").split(self._begin)
        table, after = rest.split(_END)
        return before, table, after


_END = "<!-- end of the table -->"
