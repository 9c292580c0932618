"""Sphinx configuration. Build with ``python -m sphinx -W --keep-going -b html docs docs/_build/html``."""

import collections
import functools
import inspect
import re
import sys
from pathlib import Path

from sphinx.domains.python import PythonDomain
from sphinx.util.inspect import stringify_signature
from sphinx.util.nodes import make_refnode
from sphinx.writers.html5 import HTML5Translator

from accvlab.dali_pipeline_framework import __version__

sys.path.insert(0, str(Path(__file__).parent))
import make_pages

project = "accvlab.dali_pipeline_framework"
copyright = "the authors, Apache-2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "accvlab: data loading with DALI"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
toc_object_entries_show_parents = "hide"
add_module_names = False
python_maximum_signature_line_length = 90  # longer ones have a line for each argument

# `name` in a docstring is a link. In nitpicky mode a link that leads nowhere is a warning, hence an error.
default_role = "py:obj"
nitpicky = True
nitpick_ignore_regex = [
    # Other projects: their inventories would have to be downloaded.
    (r"py:.*", r"(nvidia|os|pathlib|torch|numpy|np|npt|types|attrs|collections|abc|typing|fractions)\..*"),
    (r"py:.*", r"Pipeline|DataNode|SampleInfo"),
    (
        r"py:.*",
        r"Any|Callable|Fraction|Iterable|Iterator|Literal|Mapping|Sequence|SupportsIndex|TracebackType|ClassVar",
    ),
    (r"py:.*", r"None|bool|int|str|float|object|type|tuple|list|dict"),
    (r"py:.*", r"[A-Z]\w*Error|StopIteration|Exception|BaseException"),
    # Aliases and inner classes, which have no entry of their own.
    (
        r"py:.*",
        r"Name|Names|Path|PathType|FieldPath|FieldType|FieldValue|OutputType|RaggedPolicy|RaggedArgument|WorkerArgument|StreamPlan|FlatPlan",
    ),
    (r"py:.*", r"Key|PixelFields|VideoPaths|RandomDraw|(.*\.)?RunWhere"),
    (r"py:.*", r"UInt8Array|LabelArray|FileName|StoragePath|(.*\.)?_T"),
    (
        r"py:.*",
        r"NDArray|DALIDataType|DALIImageType|Int64Array|BoolArray|ShardArgument|Weights|Device",
    ),
    (
        r"py:.*",
        r"StorageOptions|FileSystem|Source|ReaderArguments|LastSequencePolicy|DecoderChoice|EncodedVideo|(.*\.)?FileState",
    ),
    (r"py:.*", r"PipelineInput|Cameras|RigLayout|Alignment|TimestampRule|MissingPolicy"),
    (r"py:.*", r"VideoPath|VideoSource|PadMode|ListFormat|FrameNumbers|Colors|(.*\.)?FrameMemory"),
    (r"py:.*", r"Packet|VideoStream|av\..*"),
    (r"py:.*", r"Float64|Float64Array|Array|ArrayLike|Figure|Unpack|DrivingFieldSettings|DrawKey|Lengths"),
    (r"py:.*", r"Bool|Float32|Int32|Int64|UInt8|Batch|Shown"),
    (r"py:.*", r"(.*\.)?(ProviderSettings|DrivingFieldSettings|RecipeSettings)"),
    (r"py:.*", r"(.*\.)?(Frame|Camera|Lidar|Box|Box2d|Line|Motion)Columns"),
    (r"py:.*", r"(.*\.)?(GroupFormat|LeafFormat|conversion\.converted|_Self|_Step|ArraySteps)"),
    (
        r"py:.*",
        r"Classes|Description|Sensors|Unit|FrameRule|EdgeRule|CROPS|RASTER_CLASSES|Images|VideoDevice|VideoDecoder|DECODED_ON_GPU|(.*\.)?(Pool|EncodedClip|KnownFile|ByteMap|SmoothTrajectory)|DrawKey|GivenOrder|Lengths|(.*\.)?ImagePlan",
    ),
    (
        r"py:.*",
        r"(.*\.)?(Counts|Delivery|FailureDiagnosis|Culprit|InputSource|FedSource|RemoteFile|DrawSource|RunSettings)|Sums|PixelArray",
    ),
    (r"py:exc", r"As .*"),
]

autoclass_content = "both"  # arguments are described in the docstring of __init__
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
napoleon_google_docstring = True
napoleon_numpy_docstring = False


# Napoleon takes the start of "Names of all fields: joined by dots" in a property's docstring for a type.
_HIDDEN_COLON = "\x1d"


def _hide_colons(app, what, name, obj, options, lines):
    if what == "property" and lines:
        lines[0] = lines[0].replace(":", _HIDDEN_COLON)


def _show_colons(app, what, name, obj, options, lines):
    lines[:] = [line.replace(_HIDDEN_COLON, ":") for line in lines]


def _drop_generated(app, what, name, obj, options, lines):
    """Leave out the docstring of `__init__` that attrs writes, or that is inherited from `object`."""
    for number, line in enumerate(lines):
        if make_pages.is_generated(line):
            lines[number:] = []
            return


def _show_arguments(app, what, name, obj, options, signature, return_annotation):
    """Show the arguments of a class whose `__new__` takes anything, and defaults as they are written."""
    if what == "class" and ((signature or "").startswith("(*args") or "NOTHING" in (signature or "")):
        shown = make_pages.with_readable_defaults(obj, inspect.signature(obj))
        return stringify_signature(shown, show_annotation=False), return_annotation
    return None


@functools.cache
def _entries_by_ending(env):
    """What is called by each ending of a dotted name. References are resolved when all pages have been read."""
    entries = collections.defaultdict(dict)
    for name, entry in env.get_domain("py").objects.items():
        parts = name.split(".")
        for first in range(len(parts)):
            entries[".".join(parts[first:])][entry.node_id] = entry
    return entries


@functools.cache
def _objects_by_last_name(env):
    objects = collections.defaultdict(dict)
    for name, entry in env.get_domain("py").data["objects"].items():
        objects[name.rpartition(".")[2]][name] = entry
    return objects


def _link_by_last_name(app, env, node, contnode):
    """Resolve `SampleDataGroup.get_data` and inner module paths to the one object of this name."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    entries = _entries_by_ending(env)
    for wanted in (target, target.rpartition(".")[2]):
        found = entries.get(wanted, {})
        if len(found) == 1:
            (entry,) = found.values()
            from_page = node.get("refdoc", entry.docname)
            return make_refnode(app.builder, from_page, entry.docname, entry.node_id, contnode)
    return None


def _with_directives(app, name, content):
    """Make the reference from the code; what a page has of it is for those who read the page on GitHub."""
    content[0] = make_pages.for_sphinx(content[0])


class IndexedPythonDomain(PythonDomain):
    """Finds objects by an index. Without it, each link of a signature looks at the names of all objects."""

    def find_obj(self, env, modname, classname, name, type, searchmode=0):
        everything = self.data["objects"]
        last_name = name.removesuffix("()").rpartition(".")[2]
        self.data["objects"] = _objects_by_last_name(env).get(last_name, {})
        try:
            return super().find_obj(env, modname, classname, name, type, searchmode)
        finally:
            self.data["objects"] = everything


class Translator(HTML5Translator):
    """Lets a narrow window break long names between their parts; `custom.css` forbids it in a wide one."""

    _breaks_from = 28  # characters

    def visit_title(self, node):
        self._breaks_from = 20  # they are larger
        super().visit_title(node)

    def depart_title(self, node):
        super().depart_title(node)
        del self._breaks_from

    def visit_desc_signature(self, node):
        self._breaks_from = 20  # they are indented
        super().visit_desc_signature(node)

    def depart_desc_signature(self, node):
        super().depart_desc_signature(node)
        del self._breaks_from

    def visit_Text(self, node):
        first = len(self.body)
        super().visit_Text(node)
        tag_or_long_word = rf"<[^>]*>|(?:&#?\w+;|[^\s<&]){{{self._breaks_from},}}"
        self.body[first:] = [re.sub(tag_or_long_word, _with_breaks, part) for part in self.body[first:]]


def _with_breaks(found):
    if found[0].startswith("<"):  # a tag
        return found[0]
    return re.sub(r"(?<=[a-z\d])(?=[A-Z])|(?<=[_./=(\[])(?=\w)", "<wbr>", found[0])


def setup(app):
    app.set_translator("html", Translator)
    app.add_domain(IndexedPythonDomain, override=True)
    app.connect("source-read", _with_directives)
    app.connect("autodoc-process-signature", _show_arguments)
    app.connect("autodoc-process-docstring", _drop_generated)
    app.connect("autodoc-process-docstring", _hide_colons, priority=400)  # Napoleon: 500
    app.connect("autodoc-process-docstring", _show_colons, priority=600)
    app.connect("missing-reference", _link_by_last_name)
