from ..workers.ray_settings import RayWorkers as RayWorkers
