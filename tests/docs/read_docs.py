"""Builds the documentation as ``python -m sphinx`` does, in little more than half of its time, for the tests.

Reports the same, and leaves out only what nobody asks for: where definitions are in modules that no page includes,
a log in memory of what autodoc looks at, and the search for cycles in trees that live as long as the process.
"""

from __future__ import annotations

import gc
import logging
import sys

from sphinx.cmd.build import main
from sphinx.pycode import ModuleAnalyzer
from sphinx.pycode.parser import DefinitionFinder, Parser


def _find_tags(module: ModuleAnalyzer) -> dict[str, tuple[str, int, int]]:
    """Where its definitions are, for pages that include one of them."""
    finder = DefinitionFinder(module.code.splitlines(True))
    finder.parse()
    return finder.definitions


if __name__ == "__main__":
    gc.disable()
    logging.getLogger("sphinx.sphinx.ext.autodoc").setLevel(logging.INFO)
    Parser.parse_definition = lambda parser: None  # type: ignore[method-assign]
    ModuleAnalyzer.find_tags = _find_tags  # type: ignore[method-assign]
    sys.exit(main(sys.argv[1:]))
