from .pictures import Picture as Picture
from .pictures import save_recording as save_recording
from .pictures import show as show
from .scene_views import CameraView as CameraView
from .scene_views import SceneView as SceneView
from .scene_views import ViewFields as ViewFields
from .scene_views import scene_view as scene_view
