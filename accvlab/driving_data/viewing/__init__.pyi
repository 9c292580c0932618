from .pictures import Picture as Picture
from .pictures import show as show
from .recordings import save_recording as save_recording
from .scene_views import CameraView as CameraView
from .scene_views import SceneView as SceneView
from .scene_views import ViewFields as ViewFields
from .scene_views import scene_view as scene_view
