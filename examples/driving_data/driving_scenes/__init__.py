"""Small multi-camera driving scenes: a generator, its data set on disk, and a reader.

    data set = generate_scenes(root)  ->  DrivingScenes(root).frame(index)  ->  Frame

The rooms, in the order they build on each other:

- `geometry`: frames and conventions (read this first), transforms, boxes, projection
- `cameras`: the rig of six pinhole cameras
- `settings`: what a data set is made from
- `traffic`: where the ego vehicle and the objects are
- `scenery`, `surfaces`, `rendering`: what that looks like
- `storage`: the files; `generation`: writes them; `reader`: reads them
- `drawing`: boxes on pictures
- `nuscenes_export`: the same data in the format of nuScenes

From a shell: ``python -m driving_scenes OUT_DIR --sequences 5 --seed 7``.
"""

from driving_scenes.cameras import CAMERA_NAMES
from driving_scenes.drawing import CATEGORY_COLOURS, draw_boxes
from driving_scenes.errors import DatasetError, DatasetExistsError, DrivingScenesError, SettingsError
from driving_scenes.generation import ensure_scenes, generate_scenes
from driving_scenes.geometry import box_corners, project_points, projected_extents
from driving_scenes.nuscenes_export import export_nuscenes, lidar_points
from driving_scenes.reader import DrivingScenes, Frame
from driving_scenes.settings import SceneSettings
from driving_scenes.traffic import CATEGORY_NAMES

__all__ = [
    "CAMERA_NAMES",
    "CATEGORY_COLOURS",
    "CATEGORY_NAMES",
    "DatasetError",
    "DatasetExistsError",
    "DrivingScenes",
    "DrivingScenesError",
    "Frame",
    "SceneSettings",
    "SettingsError",
    "box_corners",
    "draw_boxes",
    "ensure_scenes",
    "export_nuscenes",
    "generate_scenes",
    "lidar_points",
    "project_points",
    "projected_extents",
]
