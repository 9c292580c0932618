"""Small multi-camera driving scenes: a generator, and the files of nuScenes that hold them.

    scenes = generate_scenes()  ->  scenes.frames[index]  ->  Frame
    export_nuscenes(scenes, root)

The rooms, in the order they build on each other:

- `geometry`: frames and conventions (read this first), transforms, boxes, projection
- `cameras`: the rig of six pinhole cameras
- `settings`: what scenes are made from
- `traffic`: where the ego vehicle and the objects are
- `scenery`, `surfaces`, `rendering`: what that looks like
- `frames`, `generation`: the frames, and what makes them
- `drawing`: boxes on pictures
- `export`: the frames in the format of nuScenes
"""

from driving_scenes.cameras import CAMERA_NAMES
from driving_scenes.drawing import CATEGORY_COLOURS, draw_boxes
from driving_scenes.export import cast_rays, drive_of, export_nuscenes, lidar_points
from driving_scenes.frames import DrivingScenes, Frame
from driving_scenes.generation import generate_scenes
from driving_scenes.geometry import BOX_FACES, box_corners, project_points, projected_extents
from driving_scenes.settings import SceneSettings
from driving_scenes.traffic import CATEGORY_NAMES

__all__ = [
    "BOX_FACES",
    "CAMERA_NAMES",
    "CATEGORY_COLOURS",
    "CATEGORY_NAMES",
    "DrivingScenes",
    "Frame",
    "SceneSettings",
    "box_corners",
    "cast_rays",
    "draw_boxes",
    "drive_of",
    "export_nuscenes",
    "generate_scenes",
    "lidar_points",
    "project_points",
    "projected_extents",
]
