"""The documentation: its code prints what it says, it builds without a warning, its links lead somewhere."""

import ast
import functools
import importlib.metadata
import re
import sys
import types
import urllib.parse

import numpy as np
import pytest
from doc_pages import (
    PAGES,
    ROOT,
    WITH_OWN_PROCESS,
    PageFailedError,
    find_fences,
    gpu_graphs,
    read_lines,
    run_page,
    run_pages,
    script_of,
    shown_outputs,
)
from PIL import Image
from support.child_processes import run_process

from accvlab.dali_pipeline_framework.testing import check_provider

sys.path.insert(0, str(ROOT / "docs"))
import make_pages

PAGES_WITH_CODE = [
    page for page in PAGES if any(fence.language == "python" for fence in find_fences(read_lines(page)))
]
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)[^)]*\)|(?:src|href|srcset)=\"([^\"]+)\"")


needs_source = pytest.mark.skipif(
    not (ROOT / "accvlab").is_dir(), reason="refers to the source, which is not here"
)


def _id(page):
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else f"{page.parent.name}/{page.name}"


# The way of a newcomer; the code of the other pages runs in a wide run.
QUICK = {"README.md", "quickstart.md"}
SHARING_A_PROCESS = [page for page in PAGES_WITH_CODE if page.name not in WITH_OWN_PROCESS]


def _wide_but_quick(pages):
    return [page if page.name in QUICK else pytest.param(page, marks=pytest.mark.wide) for page in pages]


def _assert_same(page, printed):
    shown = shown_outputs(page)
    assert [(line, text) for (line, _), text in zip(shown, printed, strict=True)] == shown


@pytest.mark.parametrize(
    "page", _wide_but_quick(page for page in PAGES_WITH_CODE if page.name in WITH_OWN_PROCESS), ids=_id
)
def test_code_of_page_prints_what_the_page_shows(page, tmp_path):
    _assert_same(page, run_page(page, tmp_path))


@pytest.fixture(scope="module")
def folder_of_pages(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def printed_by_page(folder_of_pages, request):
    """What the pages print; run when the first of them is requested."""
    is_wide = request.config.getoption("--wide")
    return run_pages([page for page in SHARING_A_PROCESS if is_wide or page.name in QUICK], folder_of_pages)


@pytest.mark.timeout(300)  # long where the machine is busy
@pytest.mark.parametrize("page", _wide_but_quick(SHARING_A_PROCESS), ids=_id)
def test_code_of_page_prints_what_the_page_shows_in_a_shared_process(page, printed_by_page):
    printed = printed_by_page[page]
    if isinstance(printed, PageFailedError):
        raise printed
    _assert_same(page, printed)


@needs_source
@pytest.mark.wide
@pytest.mark.usefixtures("printed_by_page")
@pytest.mark.timeout(300)
def test_code_of_page_about_viewing_saves_the_picture_that_it_shows(folder_of_pages):
    page = ROOT / "docs" / "driving_data" / "seeing.md"
    saved = folder_of_pages / str(SHARING_A_PROCESS.index(page)) / "drive.png"
    saved, shown = (
        np.asarray(Image.open(path).convert("RGB"), np.float32)
        for path in (saved, ROOT / "docs" / "_static" / "seeing.webp")
    )
    assert saved.shape == shown.shape
    assert np.abs(saved - shown).mean() < 0.2  # fonts may differ; a box at another place is 0.36


# With a GPU: operators that compute on the CPU, on the GPU, and on both.
GPU_GRAPHS = {
    "chains": [(32, 7, 1), (26, 4, 1), (37, 11, 1), (26, 3, 1), (57, 5, 1)],
    "files": [(0, 0, 1), (0, 0, 1), (2, 4, 1)],
    "own_step": [(1, 7, 1), (3, 7, 1), (0, 2, 1), (0, 2, 1), (3, 5, 1)],
    "rig": [(0, 0, 1), (2, 8, 1), (0, 2, 1)],
    "where_steps_run": [(8, 3, 0), (8, 3, 0), (8, 2, 0)],
}


@pytest.mark.wide
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("printed_by_page")
def test_all_pipelines_of_the_pages_can_be_defined_for_a_gpu(folder_of_pages):
    """A page whose pipeline a GPU cannot have fails in the test above."""
    graphs = gpu_graphs(folder_of_pages)
    assert {page: graphs[page] for page in GPU_GRAPHS} == GPU_GRAPHS
    assert len(graphs) > 20


@pytest.mark.parametrize(
    ("page", "name", "arguments"),
    [
        ("README.md", "Drives", ()),
        ("docs/dali_pipeline_framework/input.md", "Numbers", (5,)),
        ("docs/dali_pipeline_framework/pipeline.md", "Scenes", ()),
        ("docs/dali_pipeline_framework/loader.md", "Scenes", ()),
        ("docs/dali_pipeline_framework/order.md", "Numbers", (5,)),
        ("docs/dali_pipeline_framework/own_step.md", "TwoCameras", ()),
        ("docs/dali_pipeline_framework/pipeline.md", "TwoCameras", ()),
        ("docs/dali_pipeline_framework/provider.md", "BoxesProvider", ("index.npy",)),
        ("docs/dali_pipeline_framework/augmentations.md", "Drives", ()),
        ("docs/dali_pipeline_framework/resume.md", "Numbers", (5,)),
        ("docs/dali_pipeline_framework/samplers.md", "Numbers", (5,)),
        ("docs/dali_pipeline_framework/training_loops.md", "Numbers", (5,)),
    ],
)
def test_providers_of_pages_keep_the_contract(page, name, arguments, tmp_path, monkeypatch):
    """Newcomers copy them, and then call `check_provider`."""
    lines = read_lines(ROOT / page)
    script = ast.parse(script_of(lines, find_fences(lines)))
    imports = [node for node in script.body if isinstance(node, ast.Import | ast.ImportFrom)]
    classes = [node for node in script.body if isinstance(node, ast.ClassDef) and node.name == name]
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    exec(compile(ast.Module([*imports, *classes], []), page, "exec"), vars(module))
    monkeypatch.chdir(tmp_path)
    np.save("index.npy", np.arange(27.0).reshape(3, 9))
    check_provider(getattr(module, name)(*arguments), num_workers=0)


@needs_source
@pytest.mark.wide
@pytest.mark.timeout(300)  # long where the machine is busy
def test_docs_build_without_a_warning(tmp_path):
    options = ["-W", "--keep-going", "-q", "-d", str(tmp_path / "doctrees")]
    # Each page would get a copy of the table of contents with all classes and methods, a third of the time.
    options += ["-D", "toc_object_entries=0"]
    # Neither gives a warning, and nobody reads what is written.
    options += ["-D", "smartquotes=0", "-D", "autodoc_use_type_comments=0"]
    built = run_process(
        [sys.executable, "-m", "sphinx", "-b", "html", *options, str(ROOT / "docs"), str(tmp_path / "html")]
    )
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "html" / "index.html").is_file()


def _links(page):
    lines = read_lines(page)
    for fence in reversed(find_fences(lines)):
        del lines[fence.first : fence.end]
    return [first or second for first, second in _LINK.findall("\n".join(lines))]


@functools.cache
def _anchors(page):
    headings = [line.lstrip("#").strip() for line in read_lines(page) if re.match(r"#+ ", line)]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _leads_somewhere(page, link):
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in _anchors(target))


@needs_source
def test_relative_links_lead_somewhere():
    links = [(page, link) for page in PAGES for link in _links(page) if not urllib.parse.urlsplit(link).scheme]
    assert len(links) > 500
    assert [(_id(page), link) for page, link in links if not _leads_somewhere(page, link)] == []


@needs_source
def test_generated_parts_of_pages_are_current(capsys):
    assert make_pages.main(["--check"]) == 0, f"python docs/make_pages.py {capsys.readouterr().out}"


_INTERNALS = re.compile(
    r"NOTHING|ForwardRef|typing\.|Initialize self\.|[:{]py:|:\w+:`| object at 0x|<function|<factory|^=+ +=+",
    re.MULTILINE,
)


@needs_source
def test_pages_show_defaults_types_and_links_as_people_write_them():
    shown = {_id(page): _INTERNALS.findall(page.read_text(encoding="utf-8")) for page in make_pages.pages()}
    assert {page: found for page, found in shown.items() if found} == {}


# Read twice by everybody: a pronoun chained to a pronoun, or a noun that is only "so" or "there".
_CHAINED = re.compile(
    r"\b(?:that|those) of (?:that|those)\b|\bthose that are there\b|\bcall(?:s|ed)? so\b|\bthan that of\b"
)


@needs_source
def test_prose_names_its_nouns():
    texts = [*make_pages.pages(), ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "accvlab").rglob("*.py")]
    found = {_id(path): _CHAINED.findall(" ".join(path.read_text(encoding="utf-8").split())) for path in texts}
    assert {path: phrases for path, phrases in found.items() if phrases} == {}


@needs_source
def test_contributing_names_helpers_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("### Helpers of the tests")[2].partition("made_drive")[0]
    rows = [
        re.findall(r"`(\w+)(?:\.(\w+))?`", line.split("|")[2]) for line in re.findall(r"^\| an? .*", table, re.M)
    ]
    assert len(rows) > 8
    for row in filter(None, rows):
        module = None
        for name, in_module in row:
            if in_module or module is None or not hasattr(module, name):
                module = importlib.import_module(f"support.{name}")
            assert hasattr(module, in_module or name) or not in_module, (name, in_module)


@needs_source
def test_contributing_names_tables_that_exist():
    names = {*re.findall(r"`([A-Z][A-Z_]+)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))}
    names -= {"ACCVLAB_DATA"}
    files = [path for folder in ("tests", "examples", "accvlab") for path in (ROOT / folder).rglob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    assert {"GOOD", "KINDS"} <= names
    assert {name for name in names if not re.search(rf"^{name}\b.* = ", text, re.M)} == set()


@needs_source
def test_all_extras_are_listed():
    names = importlib.metadata.metadata("accvlab.dali_pipeline_framework").get_all("Provides-Extra")
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    first_cells = re.findall(r"^\| (`[^|]+`) \|", page, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(first_cells))) == sorted(names)


def _is_reference(page):
    return bool({"api", "steps"} & {*page.relative_to(make_pages.DOCS).parts})


def test_each_page_can_be_read_at_once_and_all_of_them_in_a_day():
    words = {page: make_pages.words_by_hand(page.read_text(encoding="utf-8")) for page in make_pages.pages()}
    to_read = {page: number for page, number in words.items() if not _is_reference(page)}
    assert [page.name for page, number in to_read.items() if number > 1200] == []
    assert len(to_read) <= 60
    number = sum(words.values())
    assert number <= 33_000, f"{number - 33_000} too many: shorten the least read text of your pages"


def test_the_first_page_leads_to_few():
    page = re.sub(r"<!--.*?-->", "", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(re.findall(r"(?<!!)\[[^]]*\]\(", page)) <= 40
