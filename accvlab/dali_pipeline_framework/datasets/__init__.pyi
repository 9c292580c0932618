from .argoverse.argoverse_provider import ArgoverseProvider as ArgoverseProvider
from .arrow_logs.arrow_log_provider import ArrowLogProvider as ArrowLogProvider
from .driving.driving_fields import DrivingFields as DrivingFields
from .driving.driving_index import DrivingIndex as DrivingIndex
from .driving.driving_provider import DrivingProvider as DrivingProvider
from .kitti.kitti_odometry_provider import KittiOdometryProvider as KittiOdometryProvider
from .kitti.kitti_tracking_provider import KittiTrackingProvider as KittiTrackingProvider
