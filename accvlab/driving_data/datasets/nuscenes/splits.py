# SPDX-License-Identifier: Apache-2.0
"""What nuScenes has laid down: the scenes of its splits, its categories, and the classes of its detection task.

The lists are in ``nuscenes.json``, those of the nuScenes devkit 1.1.11 (Apache-2.0): ``nuscenes/utils/splits.py``,
``nuscenes/eval/detection/utils.py``.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from accvlab.dali_pipeline_framework.checks import bullets, did_you_mean, listed, setting_error, shown
from accvlab.dali_pipeline_framework.errors import FileError, SettingError, file_error
from accvlab.dali_pipeline_framework.extension import parse_json, read_table
from accvlab.dali_pipeline_framework.user_warnings import warn_user

from ..driving.driving_fields import checked_classes

_logger = logging.getLogger(__name__)

_FACTS: dict[str, Any] = json.loads(files(__package__).joinpath("nuscenes.json").read_text(encoding="utf-8"))
SPLITS = ("train", "val", "test", "mini_train", "mini_val", "train_detect", "train_track")
_RULE = f"one of {', '.join(SPLITS)}, or the path of a file with names of scenes"

# The ten classes, in the order that the configurations of most detectors have; what the data set calls each.
DETECTION_CLASSES: dict[str, tuple[str, ...]] = {
    name: tuple(categories) for name, categories in _FACTS["detection_classes"].items()
}
CATEGORIES: tuple[str, ...] = tuple(_FACTS["categories"])


def scenes_of_split(split: str) -> tuple[str, ...]:
    """Names of the scenes of one of `SPLITS`, sorted."""
    if split == "train":
        return tuple(sorted((*scenes_of_split("train_detect"), *scenes_of_split("train_track"))))
    # "3-5" is scene-0003, scene-0004, scene-0005.
    spans = [tuple(map(int, span.split("-"))) for span in _FACTS["scene_numbers"][split]]
    return tuple(f"scene-{number:04d}" for span in spans for number in range(span[0], span[-1] + 1))


def names_of_split(split: str | os.PathLike[str]) -> Sequence[str] | None:
    """Names of the scenes of a split, or in a file; None where there is no such split or file.

    Raises:
        FileError: The file cannot be read.
    """
    if not isinstance(split, str | os.PathLike):
        raise setting_error("split", _RULE, split, "To name scenes, use `scenes`.")
    name = os.fspath(split)
    if name in SPLITS:
        return scenes_of_split(name)
    return _scenes_in_file(Path(name)) if os.path.isfile(name) else None


def chosen_by_split(split: str | os.PathLike[str], known: Sequence[str]) -> list[str]:
    """Names of the scenes of a split that are among ``known``, in that order; those of a file, in its order.

    Raises:
        SettingError: There is no such split or file, or none of its scenes is known.
        FileError: The file cannot be read.
    """
    name = os.fspath(split)
    if name not in SPLITS:
        if os.path.isfile(name):
            return _scenes_in_file(Path(name))
        raise setting_error("split", _RULE, name, did_you_mean(name, SPLITS).strip())
    wanted = set(scenes_of_split(name))
    chosen = [scene for scene in known if scene in wanted]
    if not chosen:
        others = [
            other for other in SPLITS if not wanted.issuperset(known) and set(scenes_of_split(other)) & {*known}
        ]
        what = f"`split` is {name!r}, but none of its {len(wanted)} scenes is in these tables, which have"
        hint = f"There are scenes of {listed(others)}." if others else "Use `scenes`."
        raise SettingError(f"{what} {len(known)}: {listed(known, 5)}. {hint}")
    if len(chosen) < len(wanted):
        _logger.warning("%d of the %d scenes of the split %r are in these tables.", len(chosen), len(wanted), name)
    return chosen


def _scenes_in_file(path: Path) -> list[str]:
    try:
        content = read_table(path)
        if not content.lstrip().startswith("["):
            return content.split()
        names = parse_json(content)
    except (OSError, ValueError) as error:
        raise file_error(f"The split {str(path)!r} cannot be read", error) from error
    if not all(isinstance(name, str) for name in names):
        raise FileError(f"The split {str(path)!r} must be a list of names of scenes, got {shown(names)}.")
    return list(names)


def class_mapping(
    classes: Sequence[str] | Mapping[str, str] | str, known: Sequence[str]
) -> Mapping[str, str] | Sequence[str]:
    """Categories of the data set by the classes that are requested, by their own names or as classes of detection.

    Of ``"detection"``, classes that the data set does not have are left out, with a warning.

    Raises:
        SettingError: The data set has no category for a class, or none for any class of detection; or two
            classes have the same category.
    """
    is_all = isinstance(classes, str)
    names = DETECTION_CLASSES if is_all else checked_classes(classes)
    raw_of = {name: [raw for raw in (name, *DETECTION_CLASSES.get(name, ())) if raw in known] for name in names}
    problems = [
        f"classes: there is no category {shown(name)}, nor such a class of detection."
        f"{did_you_mean(name, [*known, *DETECTION_CLASSES])}"
        if name not in DETECTION_CLASSES
        else f"classes: there is no category for the class of detection {shown(name)}."
        for name in names
        if not raw_of.get(name)
    ]
    if problems and (not is_all or not any(raw_of.values())):
        raise SettingError(
            f"The data set lacks what is requested:\n{bullets(problems)}\nClasses of detection: "
            f"{listed(DETECTION_CLASSES)}. Categories of the data set: {listed(known, 30)}."
        )
    if problems:
        missing = [name for name, raws in raw_of.items() if not raws]
        warn_user(
            f"`classes='detection'`: the data set has no category for {listed(missing)}. Name the classes that "
            f"are meant, of its categories: {listed(known, 30)}."
        )
    if not is_all and all(raws == [name] for name, raws in raw_of.items()):
        return classes
    renamed = classes if isinstance(classes, Mapping) else {name: name for name in names}
    class_of: dict[str, str] = {}
    for raw, new in ((raw, new) for name, new in renamed.items() for raw in raw_of[name]):
        if class_of.setdefault(raw, new) != new:
            raise SettingError(
                f"`classes` gives the category {raw!r} to two classes, {class_of[raw]!r} and {new!r}."
            )
    return class_of
