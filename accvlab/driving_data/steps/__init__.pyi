from .lidar import LidarDepthMapAdder as LidarDepthMapAdder
from .lidar import LidarSweepAggregator as LidarSweepAggregator
from .scenes import SceneTransformer as SceneTransformer
from .vectors import BEVMaskAdder as BEVMaskAdder
from .vectors import FutureTrajectoryAdder as FutureTrajectoryAdder
from .vectors import MapLineVectorizer as MapLineVectorizer
