"""Who is where and when: the ego vehicle and the objects of one sequence.

Everything is laid out in *road coordinates*: ``s`` runs along the path of the ego vehicle, ``d`` to its
left, both in metres. The road is an arc of constant curvature, and the ego vehicle drives exactly on
``d = 0``, so seen from the ego vehicle the road looks the same in every frame and only slides along ``s``.
The renderer depends on that.

Right-hand traffic, lanes 3.5 m wide; the road as the ego vehicle sees it:

    d:   +14.25  +11.25   +8.75        +1.75       -5.25   -7.75  -10.75
           | walk  | parked | v      v  ||  ^     ^  | parked | walk |
                                oncoming    ego   right lane
"""

import attrs
import numpy as np
from numpy.typing import NDArray

from driving_scenes.geometry import rotation_about_z, wrap_angle
from driving_scenes.settings import SceneSettings

__all__ = ["CATEGORY_NAMES", "RANGE_M", "Road", "Traffic", "simulate_traffic"]

Floats = NDArray[np.float64]

CATEGORY_NAMES: tuple[str, ...] = ("car", "truck", "pedestrian", "cyclist")
"""Object classes; a category id is an index into this tuple."""
CAR, TRUCK, PEDESTRIAN, CYCLIST = range(4)

RANGE_M = 70.0
"""A frame lists the objects that are at most this far ahead of or behind the ego vehicle along the road."""

# (smallest, largest) length, width, height in metres.
_SIZE_RANGES = {
    CAR: ((3.9, 1.75, 1.4), (5.0, 2.0, 1.75)),
    TRUCK: ((6.5, 2.3, 2.8), (10.5, 2.55, 3.7)),
    PEDESTRIAN: ((0.5, 0.5, 1.55), (0.8, 0.75, 1.9)),
    CYCLIST: ((1.6, 0.55, 1.6), (1.9, 0.7, 1.85)),
}
_EGO_SIZE_M = (4.7, 1.9)
_EGO_MIDDLE_S_M = 1.4  # the ego origin lies below the rear axle
_CLEARANCE_S_M, _CLEARANCE_D_M = 1.2, 0.05
_STEPS_PER_FRAME = 4  # so that nobody passes through anybody between two frames


@attrs.frozen
class Road:
    """An arc that starts in ``world_from_start`` and bends with constant curvature."""

    curvature_per_m: float
    """Positive bends to the left; never exactly 0 (a straight road is a very large circle)."""
    world_from_start: Floats = attrs.field(eq=False)

    def poses(self, s_m: Floats, d_m: Floats) -> tuple[Floats, Floats]:
        """World positions (..., 3) on the ground and headings (...) of the road at road coordinates (...)."""
        bend = self.curvature_per_m * s_m
        radius = 1.0 / self.curvature_per_m
        local = np.stack(
            [
                (radius - d_m) * np.sin(bend),
                # 1 - cos, written so that large circles lose no digits
                2.0 * radius * np.sin(0.5 * bend) ** 2 + d_m * np.cos(bend),
                np.zeros_like(bend),
            ],
            axis=-1,
        )
        start = self.world_from_start
        start_yaw = np.arctan2(start[1, 0], start[0, 0])
        return local @ start[:3, :3].T + start[:3, 3], bend + start_yaw


@attrs.frozen(eq=False)
class Traffic:
    """One simulated sequence: F frames, M observations of objects, sorted by frame and then by track."""

    road: Road
    timestamps_s: Floats
    """(F,)."""
    ego_s_m: Floats
    """(F,), how far the ego vehicle has come along the road."""
    world_from_ego: Floats
    """(F, 4, 4)."""
    offsets: NDArray[np.int64]
    """(F + 1,), the objects of frame f are the rows ``offsets[f]:offsets[f + 1]``."""
    category_ids: NDArray[np.int32]
    """(M,)."""
    track_ids: NDArray[np.int32]
    """(M,), constant for an object over the sequence."""
    centres_world: Floats
    """(M, 3), metres."""
    sizes_lwh: Floats
    """(M, 3), metres."""
    yaws_world: Floats
    """(M,), radians in [-pi, pi)."""
    velocities_world: Floats
    """(M, 2), metres per second."""


@attrs.frozen(eq=False)
class _Actor:
    category: int
    size: Floats  # (3,)
    s_m: Floats  # (T,), over the fine time steps
    d_m: Floats
    speed_s: float
    speed_d: float
    turn: float  # heading relative to the road

    @property
    def half_extent(self) -> Floats:
        length, width = self.size[0], self.size[1]
        is_across = abs(np.sin(self.turn)) > 0.5
        return 0.5 * np.array([width, length] if is_across else [length, width])


def simulate_traffic(
    settings: SceneSettings, num_frames: int, start_s: float, rng: np.random.Generator
) -> Traffic:
    """Let one sequence happen.

    Args:
        settings: frame rate and density of the traffic.
        num_frames: F.
        start_s: time of the first frame, seconds.
        rng: the only source of chance.
    """
    frame_times = np.arange(num_frames) / settings.keyframe_rate_hz
    num_steps = (num_frames - 1) * _STEPS_PER_FRAME + 1
    times = np.arange(num_steps) / (settings.keyframe_rate_hz * _STEPS_PER_FRAME)
    road = _draw_road(rng)
    ego_s = _draw_ego_path(times, rng)
    actors = _draw_actors(settings.traffic_density, times, ego_s, road, rng)
    is_frame = slice(None, None, _STEPS_PER_FRAME)
    return _observe(road, frame_times + start_s, ego_s[is_frame], actors, is_frame)


def _draw_road(rng: np.random.Generator) -> Road:
    curvature = float(rng.choice([-1.0, 1.0]) * rng.choice([0.0003, 0.002, 0.006, 0.0105]) * rng.uniform(0.8, 1.1))
    world_from_start = np.eye(4)
    world_from_start[:3, :3] = rotation_about_z(rng.uniform(-np.pi, np.pi))
    world_from_start[:3, 3] = *rng.uniform(200.0, 1800.0, size=2), rng.uniform(0.0, 5.0)
    return Road(curvature, world_from_start)


def _draw_ego_path(times: Floats, rng: np.random.Generator) -> Floats:
    speed = rng.uniform(3.5, 11.0)
    duration = max(float(times[-1]), 1.0)
    acceleration = rng.uniform(-0.35, 0.45) * speed / duration
    return np.asarray(speed * times + 0.5 * acceleration * times**2)


def _draw_actors(
    density: float, times: Floats, ego_s: Floats, road: Road, rng: np.random.Generator
) -> list[_Actor]:
    """Propose actors and keep those that stay clear of the ego vehicle and of everybody kept before."""
    stretch_m = float(ego_s[-1] - ego_s[0]) + 2.0 * RANGE_M
    busy = density * stretch_m / 140.0
    plan = (
        (_propose_moving, 20 * busy),
        (_propose_cyclist, 6 * busy),
        (_propose_crossing, 3 * busy),
        (_propose_parked, 20 * busy),
        (_propose_walking, 13 * busy),
    )
    kept: list[_Actor] = []
    for propose, count in plan:
        for _ in range(round(count)):
            actor = propose(times, ego_s, rng)
            if not _is_in_the_way(actor, kept, ego_s, road.curvature_per_m):
                kept.append(actor)
    return kept


def _is_in_the_way(actor: _Actor, others: list[_Actor], ego_s: Floats, curvature: float) -> bool:
    is_near = np.abs(actor.s_m - ego_s) <= RANGE_M
    if not is_near.any():
        return True
    # Away from d = 0, a metre of s is not a metre of road: the inside of a bend is shorter.
    stretch = 1.0 / max(0.5, 1.0 - abs(curvature) * float(np.abs(actor.d_m).max()))
    half = actor.half_extent
    ego_half = 0.5 * np.array(_EGO_SIZE_M)
    obstacles = [(ego_s + _EGO_MIDDLE_S_M, np.zeros_like(ego_s), ego_half + np.array([1.5, 0.3]))]
    obstacles += [(other.s_m, other.d_m, other.half_extent) for other in others]
    for other_s, other_d, other_half in obstacles:
        reach_s, reach_d = half + other_half
        # A straight box on a bend sticks out of its lane in the middle, by length^2 * curvature / 8.
        reach_d += 0.5 * abs(curvature) * (half[0] ** 2 + other_half[0] ** 2)
        is_close = (np.abs(actor.s_m - other_s) < (reach_s + _CLEARANCE_S_M) * stretch) & (
            np.abs(actor.d_m - other_d) < reach_d + _CLEARANCE_D_M
        )
        if (is_close & is_near).any():
            return True
    return False


def _draw_size(category: int, rng: np.random.Generator) -> Floats:
    low, high = _SIZE_RANGES[category]
    return np.asarray(rng.uniform(low, high))


def _actor(
    category: int,
    times: Floats,
    ego_s: Floats,
    rng: np.random.Generator,
    *,
    ahead_m: tuple[float, float],
    d_m: float,
    speed_s: float,
    speed_d: float = 0.0,
    turn: float,
) -> _Actor:
    """An actor that is ``ahead_m`` of the ego vehicle, at lateral ``d_m``, at some moment of the sequence."""
    moment = int(rng.integers(len(times)))
    elapsed = times - times[moment]
    s_m = ego_s[moment] + rng.uniform(*ahead_m) + speed_s * elapsed
    return _Actor(category, _draw_size(category, rng), s_m, d_m + speed_d * elapsed, speed_s, speed_d, turn)


def _propose_moving(times: Floats, ego_s: Floats, rng: np.random.Generator) -> _Actor:
    category = TRUCK if rng.random() < 0.2 else CAR
    lane = int(rng.integers(4))
    is_oncoming = lane >= 2
    d_m = (-3.5, 0.0, 3.5, 7.0)[lane] + rng.uniform(-0.1, 0.1)
    ego_speed = float(ego_s[-1] - ego_s[0]) / max(float(times[-1]), 1e-9) if len(times) > 1 else 7.0
    speed = rng.uniform(3.0, 12.0) if is_oncoming else ego_speed * rng.uniform(0.8, 1.25)
    return _actor(
        *(category, times, ego_s, rng),
        ahead_m=(-50.0, 65.0),
        d_m=d_m,
        speed_s=-speed if is_oncoming else speed,
        turn=np.pi if is_oncoming else 0.0,
    )


def _propose_parked(times: Floats, ego_s: Floats, rng: np.random.Generator) -> _Actor:
    category = TRUCK if rng.random() < 0.08 else CAR
    is_left = rng.random() < 0.5
    d_m = (10.15 if is_left else -6.65) + rng.uniform(-0.05, 0.05)
    turn = (np.pi if is_left else 0.0) + rng.uniform(-0.03, 0.03)
    return _actor(category, times, ego_s, rng, ahead_m=(-65.0, 65.0), d_m=d_m, speed_s=0.0, turn=turn)


def _propose_walking(times: Floats, ego_s: Floats, rng: np.random.Generator) -> _Actor:
    d_m = rng.uniform(11.8, 13.8) if rng.random() < 0.4 else rng.uniform(-10.3, -8.3)
    is_along = rng.random() < 0.5
    speed = 0.0 if rng.random() < 0.2 else rng.uniform(0.8, 1.7)
    return _actor(
        *(PEDESTRIAN, times, ego_s, rng),
        ahead_m=(-40.0, 50.0),
        d_m=d_m,
        speed_s=speed if is_along else -speed,
        turn=0.0 if is_along else np.pi,
    )


def _propose_crossing(times: Floats, ego_s: Floats, rng: np.random.Generator) -> _Actor:
    is_leftward = rng.random() < 0.5
    speed = rng.uniform(0.9, 1.6)
    return _actor(
        *(PEDESTRIAN, times, ego_s, rng),
        ahead_m=(8.0, 45.0),
        d_m=rng.uniform(-6.0, 8.0),
        speed_s=0.0,
        speed_d=speed if is_leftward else -speed,
        turn=0.5 * np.pi if is_leftward else -0.5 * np.pi,
    )


def _propose_cyclist(times: Floats, ego_s: Floats, rng: np.random.Generator) -> _Actor:
    is_oncoming = rng.random() < 0.4
    speed = rng.uniform(3.0, 6.0)
    return _actor(
        *(CYCLIST, times, ego_s, rng),
        ahead_m=(-30.0, 45.0),
        d_m=8.7 if is_oncoming else -5.15,
        speed_s=-speed if is_oncoming else speed,
        turn=np.pi if is_oncoming else 0.0,
    )


def _observe(road: Road, timestamps: Floats, ego_s: Floats, actors: list[_Actor], is_frame: slice) -> Traffic:
    """World coordinates of everybody in range, frame by frame."""
    num_frames, num_actors = len(ego_s), len(actors)
    positions, headings = road.poses(ego_s, np.zeros_like(ego_s))
    world_from_ego = np.zeros((num_frames, 4, 4))
    world_from_ego[:, :3, :3] = rotation_about_z(headings)
    world_from_ego[:, :3, 3] = positions
    world_from_ego[:, 3, 3] = 1.0

    s_m = np.array([actor.s_m[is_frame] for actor in actors]).reshape(num_actors, num_frames).T
    d_m = np.array([actor.d_m[is_frame] for actor in actors]).reshape(num_actors, num_frames).T
    sizes = np.array([actor.size for actor in actors]).reshape(num_actors, 3)
    grounds, road_yaws = road.poses(s_m, d_m)  # (F, A, 3), (F, A)
    centres = grounds + np.array([0.0, 0.0, 0.5]) * sizes
    yaws = wrap_angle(road_yaws + np.array([actor.turn for actor in actors]))
    along = np.array([actor.speed_s for actor in actors]) * (1.0 - road.curvature_per_m * d_m)
    across = np.array([actor.speed_d for actor in actors])
    velocities = np.stack(
        [
            along * np.cos(road_yaws) - across * np.sin(road_yaws),
            along * np.sin(road_yaws) + across * np.cos(road_yaws),
        ],
        axis=-1,
    )
    # Crossing pedestrians end at the far sides of the walks; the trees stand behind them.
    is_seen = (np.abs(s_m - ego_s[:, None]) <= RANGE_M) & (d_m > -10.5) & (d_m < 14.0)  # (F, A)
    _, rows = np.nonzero(is_seen)
    return Traffic(
        road=road,
        timestamps_s=timestamps,
        ego_s_m=ego_s,
        world_from_ego=world_from_ego,
        offsets=np.concatenate([[0], np.cumsum(is_seen.sum(axis=1))]).astype(np.int64),
        category_ids=np.array([actor.category for actor in actors], dtype=np.int32)[rows],
        track_ids=rows.astype(np.int32),
        centres_world=centres[is_seen],
        sizes_lwh=sizes[rows],
        yaws_world=yaws[is_seen],
        velocities_world=velocities[is_seen],
    )
