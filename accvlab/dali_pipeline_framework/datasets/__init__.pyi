from .driving.driving_fields import DrivingFields as DrivingFields
from .driving.driving_index import DrivingIndex as DrivingIndex
from .driving.driving_provider import DrivingProvider as DrivingProvider
from .infos.infos_provider import InfosProvider as InfosProvider
from .nuscenes.nuscenes_provider import NuScenesProvider as NuScenesProvider
