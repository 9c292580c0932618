from .ray_actors import RayPool as RayPool
from .settings import RayWorkers as RayWorkers
