"""What imports what, what is loaded by an import, and what that costs."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import random
import sys
import textwrap
from collections.abc import Set
from pathlib import Path

import pytest
from import_rules import Directions, source_texts
from support.child_processes import run_process
from support.laws import examples, spread
from support.private_names import (  # noqa: F401 (a fixture)
    defined_names,
    parsed,
    private_names_of_dali,
    trees_are_forgotten,
    used_names,
)

import accvlab.dali_pipeline_framework as package
import accvlab.driving_data as driving

ROOT = Path(package.__file__).parent
NAME = "accvlab.dali_pipeline_framework"

# Sub-room -> sub-rooms right below it, see `Directions`.
BELOW = {
    "url_secrets": "",
    "errors": "",
    "installation": "",
    "public_names": "installation",
    "engine.dali": "errors forks threads",
    "checks": "errors",
    "user_warnings": "",
    "threads": "",
    "forks": "",
    "unknown_arguments": "checks",
    "limits": "checks public_names",
    "sample_data": "checks",
    "draws": "sample_data",
    "sampling.arithmetic": "checks draws",
    "sampling.plans": "sampling.arithmetic",
    "sampling": "sampling.plans",
    "faults": "sampling limits",
    "providers": "sampling unknown_arguments",
    "providers.files": "providers limits threads url_secrets",
    "video.files": "providers.files",
    "providers.frames": "providers.files",
    "video": "providers.frames sources operators video.files forks",
    "sources": "providers faults unknown_arguments engine.dali user_warnings",
    "sources.readers": "sources providers.frames video",
    "operators": "draws engine.dali limits threads",
    "operators.published": "operators",
    "processing_steps": "operators unknown_arguments",
    "processing_steps.wrappers": "processing_steps",
    "processing_steps.image": "processing_steps.wrappers video",
    "processing_steps.geometry": "processing_steps.image",
    "processing_steps.boxes": "processing_steps.geometry",
    "ledgers": "limits",
    "workers": "sources limits engine.dali threads forks",
    "engine.timing": "workers",
    "workers.pool": "workers",
    "workers.cluster": "workers",
    "engine": "workers.pool engine.dali engine.timing ledgers threads",
    "pipeline": "engine processing_steps.boxes",
    "loader": "pipeline providers.files workers.cluster",
    "testing": "loader",
    "command_line": "testing",
    "extension": "public_names",
    # Published paths: they show names of other rooms and have nothing of their own.
    "inputs": "public_names testing",
    "cluster": "public_names workers.cluster",
    "internal_helpers": "internal_helpers.mini_parser operators.published",
    "internal_helpers.mini_parser": "public_names operators",
    "operators_impl": "public_names",
    "operators_impl.numba_operators": "public_names operators.published",
    "operators_impl.python_operator_functions": "public_names operators.published",
    "": "public_names command_line",
}
DIRECTIONS = Directions(NAME, BELOW)
DOORS = ("cluster", "inputs", "internal_helpers", "operators_impl")
OPTIONAL = ("torch", "jax", "cupy", "numba", "matplotlib", "PIL", "scipy", "av", "fsspec", "rerun")
OPTIONAL += ("pyarrow", "msgpack", "ray")  # ruff refuses them at module level


@functools.cache
def sources() -> dict[str, str]:
    """Source text of each module, by its full name."""
    return source_texts(NAME, ROOT)


@functools.cache
def driving_sources() -> dict[str, str]:
    return source_texts(driving.__name__, Path(driving.__file__).parent)


# --- checkers: each takes the sources and returns the violations --------------------------------------


def uses_of_private_names(modules: dict[str, str], private: Set[str]) -> list[str]:
    """Where names that DALI keeps to itself are used, and nothing of this package has that name."""
    trees = {module: parsed(source) for module, source in modules.items()}
    own = {
        name
        for tree in trees.values()
        for node in ast.walk(tree)
        for name in defined_names(node)
        if not (isinstance(node, ast.Attribute) and not isinstance(node.value, ast.Name))
        and not (isinstance(node, ast.Attribute) and node.value.id not in ("self", "changed"))
    }
    foreign = private - own
    return [
        f"{module}:{node.lineno} uses {name}"
        for module, tree in trees.items()
        for node in ast.walk(tree)
        for name in used_names(node)
        if name in foreign
    ]


def contents_of_doors(modules: dict[str, str]) -> list[str]:
    """What modules of published paths hold beside a docstring, imports and the list of their names."""
    found = []
    for module, source in modules.items():
        if DIRECTIONS.room_of(module).split(".")[0] not in DOORS:
            continue
        for node in parsed(source).body:
            is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            is_list = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).strip("()") in (
                "__all__",
                "__getattr__, __dir__",
            )
            if not (is_text or is_list or isinstance(node, ast.Import | ast.ImportFrom)):
                found.append(f"{module}:{node.lineno}")
    return found


class TestRules:
    def test_imports_go_one_way(self) -> None:
        assert DIRECTIONS.wrong(sources()) == []

    def test_no_room_is_below_itself(self) -> None:
        assert [room for room in BELOW if room in DIRECTIONS.rooms_below(room)] == []  # a cycle would not end

    def test_only_the_engine_uses_private_names_of_dali(self) -> None:
        private = private_names_of_dali()
        assert {"_py_pool", "_conditional", "_DaliPickle", "_device_id"} <= private
        elsewhere = {name: text for name, text in sources().items() if not name.startswith(f"{NAME}.engine")}
        assert uses_of_private_names({**elsewhere, **driving_sources()}, private) == []

    def test_published_paths_hold_nothing_of_their_own(self) -> None:
        assert contents_of_doors(sources()) == []

    def test_the_rooms_are_the_known_ones(self) -> None:
        folders = {str(path.parent.relative_to(ROOT)).replace("/", ".").strip(".") for path in ROOT.rglob("*.py")}
        assert folders <= BELOW.keys()
        modules = {module.removeprefix(NAME).lstrip(".") for module in sources()}
        assert BELOW.keys() <= modules

    def test_no_room_is_too_large_to_be_read_in_one_look(self) -> None:
        modules = [
            path
            for package in ("dali_pipeline_framework", "driving_data")
            for path in ROOT.with_name(package).rglob("*.py")
        ]
        counts = {folder: len([*folder.glob("*.py")]) - 1 for folder in {path.parent for path in modules}}
        assert {str(folder): count for folder, count in counts.items() if count > 16} == {}


class TestTheCheckersThemselves:
    """A guard counts only once it has been seen to fail."""

    @pytest.mark.parametrize(
        ("module", "source"),
        [
            ("sources.bad", f"import {NAME}.pipeline"),
            ("sources.bad", f"from {NAME}.pipeline import PipelineDefinition"),
            ("sources.bad", f"def late():\n    from {NAME}.processing_steps import ImageDecoder"),
            ("sources.bad", "from ..processing_steps import image_decoder"),
            ("sources.bad", "from .readers import native_readers"),  # a sub-room above
            ("sampling.plans.bad", "from ..sampler_base import SamplerBase"),
            ("processing_steps.bad", f"try:\n    from {NAME}.inputs import DataProvider\nexcept ImportError: ..."),
            ("operators.published.bad", "from ...sources import shards"),
            ("errors", f"from {NAME}.sample_data import SampleDataGroup"),
            ("sample_data.x", f"if TYPE_CHECKING:\n    ...\nelse:\n    from {NAME}.inputs import DataProvider"),
        ],
    )
    def test_wrong_directions_are_found(self, module: str, source: str) -> None:
        modules = {f"{NAME}.sources": "", f"{NAME}.sources.x": "", f"{NAME}.{module}": source}
        assert len(DIRECTIONS.wrong(modules)) == 1

    @pytest.mark.parametrize(
        ("module", "source"),
        [
            ("pipeline.good", f"from {NAME}.providers import data_provider\nfrom ..processing_steps import x"),
            ("sources.good", f"from {NAME}.sample_data import SampleDataGroup"),
            ("sources.good", "from .pipeline import x\nfrom . import pipeline"),  # a module of the same room
            ("errors", f"if TYPE_CHECKING:\n    from {NAME}.sample_data import SampleDataGroup"),
        ],
    )
    def test_right_directions_are_accepted(self, module: str, source: str) -> None:
        assert DIRECTIONS.wrong({f"{NAME}.{module}": source}) == []

    @pytest.mark.parametrize(
        "source",
        [
            "def close(pipeline):\n    pipeline._py_pool.close()",
            "getattr(pipeline, '_py_pool')",
            "from nvidia.dali.pickling import _DaliPickle",
            "from nvidia.dali import fn\nfn._conditional.split(1)",
            "import nvidia.dali._multiproc",
            "pipeline._device_id = None",
        ],
    )
    def test_private_names_are_found(self, source: str) -> None:
        private = {"_py_pool", "_DaliPickle", "_conditional", "_multiproc", "_device_id", "_own"}
        own = "class A:\n    def __init__(self):\n        self._own = 1\n\ndef f(a):\n    a._own"
        assert len(uses_of_private_names({"bad": source, "good": own}, private)) == 1

    def test_contents_of_doors_are_found(self) -> None:
        good = "'A text.'\nfrom ..x import A\n\n__all__ = ['A']"
        bad = f"{good}\ndef helper():\n    pass"
        modules = {f"{NAME}.inputs.good": good, f"{NAME}.inputs.bad": bad, f"{NAME}.sources.bad": bad}
        assert contents_of_doors(modules) == [f"{NAME}.inputs.bad:5"]


# --- real imports, in processes of their own ----------------------------------------------------------


def run_python(script: str, timeout: int = 90) -> str:
    result = run_process([sys.executable, "-c", textwrap.dedent(script)], timeout=timeout)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


# Paths that users import.
FRONT_DOORS = [
    "",
    ".inputs",
    ".pipeline",
    ".processing_steps",
    ".internal_helpers",
    ".operators_impl.numba_operators",
    ".operators_impl.python_operator_functions",
]


class TestImporting:
    def test_loads_no_optional_package_and_prints_nothing(self) -> None:
        # What DALI loads is in all of the children; to import it takes longer than the rest.
        output = run_python(f"""
            import importlib, os, sys
            import nvidia.dali.fn, nvidia.dali.pipeline

            for door in {FRONT_DOORS!r}:
                if os.fork() == 0:
                    importlib.import_module({NAME!r} + door)
                    print("of" + door, *sorted(name for name in {OPTIONAL!r} if name in sys.modules), flush=True)
                    os._exit(0)
                os.wait()
        """)
        assert output == "".join(f"of{door}\n" for door in FRONT_DOORS)

    def test_of_sampling_loads_no_dali(self) -> None:
        modules = [module for module in sources() if f"{module}.".startswith(f"{NAME}.sampling.")]
        assert len(modules) > 10
        output = run_python(f"""
            import importlib, sys
            for module in {modules!r}:
                importlib.import_module(module)
            print(*sorted(name for name in sys.modules if name.split(".")[0] == "nvidia"))
        """)
        assert output == "\n"

    def test_of_a_public_name_that_is_a_module_imports_it(self) -> None:
        assert run_python(f"from {NAME}.extension import functions; print(functions.__name__)") == (
            f"{NAME}.operators.functions\n"
        )

    @pytest.mark.wide
    @spread("seed", [0, 1, 2], 1)
    def test_works_in_any_order(self, seed: int) -> None:
        modules = [*sources()]
        random.Random(seed).shuffle(modules)
        output = run_python(f"""
            import importlib
            for module in {modules!r}:
                importlib.import_module(module)
            print("all")
        """)
        assert output == "all\n"

    @pytest.mark.timeout(320)  # a process for each module: long where the machine is busy
    def test_works_from_each_room_and_each_module_first(self) -> None:
        # The package imports its rooms in a fixed order, which would hide a cycle between them. So an empty one
        # takes its place; and the children share what takes long to import.
        rooms = [module for module in sources() if module.removeprefix(NAME + ".") in BELOW]
        modules = [module for module in [*sources()][1:] if module not in rooms]
        assert len(rooms) > 40
        assert len(modules) > 120
        output = run_python(
            f"""
            import importlib, os, sys, traceback, types
            import attrs, gc, nvidia.dali.fn, nvidia.dali.pipeline

            gc.disable()  # it would write to the memory that the children share
            for module in {rooms + modules[:: examples(12, 1)]!r}:
                child = os.fork()
                if child == 0:
                    stub = types.ModuleType({NAME!r})
                    stub.__path__ = [{str(ROOT)!r}]
                    sys.modules[{NAME!r}] = stub
                    try:
                        importlib.import_module(module)
                        os._exit(0)
                    except BaseException:
                        traceback.print_exc(limit=-2, file=sys.stdout)
                        sys.stdout.flush()
                        os._exit(1)
                if os.waitpid(child, 0)[1]:
                    print(module, "cannot be imported first", flush=True)
            print("done")
        """,
            timeout=300,
        )
        assert output == "done\n"

    def test_takes_few_calls_next_to_importing_dali(self) -> None:
        # Calls of Python functions: their number is the same however busy the machine is.
        # The package itself imports its rooms on demand. What is last is what every pipeline needs.
        needed = f"from {NAME}.pipeline import DALIStructuredOutputIterator, PipelineDefinition"
        output = run_python(f"""
            import sys
            calls = []
            for statement in ("import nvidia.dali", "import {NAME}", {needed!r}):
                number = 0
                def note(frame, event, argument):
                    global number
                    number += event == "call"
                sys.setprofile(note)
                exec(statement)
                sys.setprofile(None)
                calls.append(number)
            print(*calls)
        """)
        of_dali, of_package, of_pipelines = map(int, output.split())
        assert of_dali > 50_000
        assert 0 < of_package <= 0.02 * of_dali
        assert 0 < of_pipelines <= 0.25 * of_dali


STUBS = sorted(path.parent for path in ROOT.parent.rglob("__init__.pyi"))


@pytest.mark.parametrize("folder", STUBS, ids=lambda folder: str(folder.relative_to(ROOT.parent)))
def test_names_that_are_imported_on_demand_are_those_of_the_stub(folder: Path) -> None:
    # A type checker reads the stub; here is what `import *`, `dir` and an access find at run time.
    package = importlib.import_module(".".join(["accvlab", *folder.relative_to(ROOT.parent).parts]))
    declared = {
        alias.name
        for node in ast.parse((folder / "__init__.pyi").read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name != "*"
    }
    assert declared <= {*package.__all__} <= {*dir(package), "__version__"}
    assert package.__all__ == sorted({*package.__all__})
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        package.Nothing  # noqa: B018


def test_the_front_door_offers_what_the_rooms_offer() -> None:
    rooms = {"inputs", "internal_helpers", "operators_impl", "pipeline", "processing_steps"}
    assert rooms | {"__version__"} <= {*package.__all__}
    assert len(package.__all__) <= 95
    stubs = (importlib.import_module(f"{NAME}.{stub.parent.name}") for stub in ROOT.glob("*/__init__.pyi"))
    offered = {name: getattr(room, name) for room in stubs for name in room.__all__}
    names = {*package.__all__} - rooms - {"__version__"}
    assert {name for name in names if offered[name] is not getattr(package, name)} == set()


# --- published names -----------------------------------------------------------------------------------


class TestPublishedNames:
    def test_of_steps(self) -> None:
        output = run_python(f"""
            from {NAME}.processing_steps.image_decoder import ImageDecoder
            import {NAME}.processing_steps.conditional_element_removal as removal
            import {NAME}.processing_steps.tensor_size_adder
            from {NAME}.processing_steps import padding_to_uniform
            from {NAME}.processing_steps.axes_layout_setter import *
            print(ImageDecoder.__name__, removal.ConditionalElementRemover.__name__, AxesLayoutSetter.__name__)
            print({NAME}.processing_steps.tensor_size_adder.TensorSizeAdder.__name__, dir(padding_to_uniform)[0])
            try:
                padding_to_uniform.ImageDecoder
            except AttributeError as error:
                print(error)
        """)
        message = f"module '{NAME}.processing_steps.padding_to_uniform' has no attribute 'ImageDecoder'"
        assert output.splitlines() == [
            "ImageDecoder ConditionalElementRemover AxesLayoutSetter",
            "TensorSizeAdder __all__",
            message,
        ]

    def test_accvlab_is_a_namespace_package(self) -> None:
        assert importlib.util.find_spec("accvlab").origin is None
        assert not (ROOT.parent / "__init__.py").exists()
