# SPDX-License-Identifier: Apache-2.0
"""What nuScenes has laid down: the scenes of its splits, its categories, and the classes of its detection task.

Lists of the nuScenes devkit 1.1.11 (Apache-2.0): ``nuscenes/utils/splits.py``,
``nuscenes/eval/detection/utils.py``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from accvlab.dali_pipeline_framework.checks import bullets, did_you_mean, listed, shown
from accvlab.dali_pipeline_framework.errors import FileError, SettingError, file_error
from accvlab.dali_pipeline_framework.extension import parse_json, read_table

_logger = logging.getLogger(__name__)

# Numbers of scenes: 3-5 is scene-0003, scene-0004, scene-0005.
_NUMBERS = {
    "train_detect": "1-2 41-76 161-168 170-176 190-196 199-200 202-204 206-214 254-264 283-306 315-318 321 "
    "323-324 "
    "347-375 382 420-439 457-459 461-465 467-469 471-472 474-480 566 568 570-578 580 582-583 665-679 681 683-689 "
    "739-741 744 746-747 749-752 757-765 767-769 868-873 875-878 880 882-903 945 947 949 952-953 955-961 975-984 "
    "988-991 1011-1025 1074-1102 1104-1105",
    "train_track": "4-11 19-34 120-135 138-139 149-152 154-155 157-160 177-185 187-188 218-220 222 224-253 328 "
    "376-381 383-386 388-403 405-408 410-419 440-456 499-502 504-515 517-518 525-539 541-546 584-600 639-664 "
    "695-698 700-701 703-719 726-728 730-731 733-738 786-787 789-792 803-806 808-813 815-817 819-822 847-856 858 "
    "860-866 992 994-1010 1044-1058 1106-1110",
    "val": "3 12-18 35-36 38-39 92-110 221 268-278 329-332 344-346 519-524 552-565 625-627 629-630 632-638 "
    "770-771 "
    "775 777-778 780-784 794-800 802 904-917 919-931 962-963 966-969 971-972 1059-1073",
    "test": "77-91 111-119 140 142-148 265-266 279-282 307-314 333-343 481-498 547-551 601-604 606-624 827-831 "
    "833-842 844-846 932-933 935-943 1026-1043",
    "mini_train": "61 553 655 757 796 1077 1094 1100",
    "mini_val": "103 916",
}
SPLITS = ("train", "val", "test", "mini_train", "mini_val", "train_detect", "train_track")

# The ten classes, in the order that the configurations of most detectors have; what the data set calls each.
DETECTION_CLASSES = {
    "car": ("vehicle.car",),
    "truck": ("vehicle.truck",),
    "construction_vehicle": ("vehicle.construction",),
    "bus": ("vehicle.bus.bendy", "vehicle.bus.rigid"),
    "trailer": ("vehicle.trailer",),
    "barrier": ("movable_object.barrier",),
    "motorcycle": ("vehicle.motorcycle",),
    "bicycle": ("vehicle.bicycle",),
    "pedestrian": (
        "human.pedestrian.adult",
        "human.pedestrian.child",
        "human.pedestrian.construction_worker",
        "human.pedestrian.police_officer",
    ),
    "traffic_cone": ("movable_object.trafficcone",),
}
CATEGORIES = (
    *("human.pedestrian.adult", "human.pedestrian.child", "human.pedestrian.wheelchair"),
    *("human.pedestrian.stroller", "human.pedestrian.personal_mobility", "human.pedestrian.police_officer"),
    *("human.pedestrian.construction_worker", "animal", "vehicle.car", "vehicle.motorcycle", "vehicle.bicycle"),
    *("vehicle.bus.bendy", "vehicle.bus.rigid", "vehicle.truck", "vehicle.construction"),
    *("vehicle.emergency.ambulance", "vehicle.emergency.police", "vehicle.trailer", "movable_object.barrier"),
    *("movable_object.trafficcone", "movable_object.pushable_pullable", "movable_object.debris"),
    "static_object.bicycle_rack",
)


def scenes_of_split(split: str) -> tuple[str, ...]:
    """Names of the scenes of one of `SPLITS`, sorted."""
    if split == "train":
        return tuple(sorted((*scenes_of_split("train_detect"), *scenes_of_split("train_track"))))
    spans = [tuple(map(int, span.split("-"))) for span in _NUMBERS[split].split()]
    return tuple(f"scene-{number:04d}" for span in spans for number in range(span[0], span[-1] + 1))


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
        raise SettingError(
            f"`split` must be one of {listed(SPLITS)}, or the path of a file with names of scenes, got "
            f"{shown(name)}.{did_you_mean(name, SPLITS)}"
        )
    wanted = set(scenes_of_split(name))
    chosen = [scene for scene in known if scene in wanted]
    if not chosen:
        others = [
            other for other in SPLITS if not wanted.issuperset(known) and set(scenes_of_split(other)) & {*known}
        ]
        raise SettingError(
            f"`split` is {name!r}, but none of its {len(wanted)} scenes is in these tables, which have "
            f"{len(known)}: {listed(known, 5)}. "
            + (f"There are scenes of {listed(others)}." if others else "Use `scenes`.")
        )
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
    classes: Sequence[str] | Mapping[str, str], known: Sequence[str]
) -> Mapping[str, str] | Sequence[str]:
    """Categories of the data set by the classes that are asked for, where classes of detection are among them.

    Raises:
        SettingError: A class is neither a category of the data set nor one of detection.
    """
    problems = [
        f"classes: there is no category {shown(name)}, nor such a class of detection."
        f"{did_you_mean(name, [*known, *DETECTION_CLASSES])}"
        for name in classes
        if name not in known and name not in DETECTION_CLASSES
    ]
    if problems:
        raise SettingError(
            f"The data set lacks what is asked for:\n{bullets(problems)}\nClasses of detection: "
            f"{listed(DETECTION_CLASSES)}. Categories of the data set: {listed(known, 30)}."
        )
    if not any(name in DETECTION_CLASSES and name not in known for name in classes):
        return classes
    renamed = classes if isinstance(classes, Mapping) else {name: name for name in classes}
    return {raw: new for name, new in renamed.items() for raw in DETECTION_CLASSES.get(name, (name,))}
