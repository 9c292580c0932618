from .future_trajectory_adder import FutureTrajectoryAdder as FutureTrajectoryAdder
from .lidar import LidarDepthMapAdder as LidarDepthMapAdder
from .lidar import LidarSweepAggregator as LidarSweepAggregator
from .maps import BEVMaskAdder as BEVMaskAdder
from .maps import MapLineVectorizer as MapLineVectorizer
