from ..workers.cluster.ray_settings import RayWorkers as RayWorkers
