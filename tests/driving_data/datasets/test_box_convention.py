"""What columns of boxes mean: found from the data, stated, contradicted, or refused."""

import contextlib
import itertools
import re

import attrs
import numpy as np
import pytest
from driving_support.info_pickles import CATEGORIES, driving_scenes, written_boxes
from hypothesis import given
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.datasets.infos.box_convention import (
    LAYOUTS,
    Z_PLACES,
    RawBoxColumns,
    convention_of,
    is_name_of_vehicle,
)


def columns_of(index, layout, z="center", *, has_instances=True):
    is_vehicle = np.array([is_name_of_vehicle(name) for name in CATEGORIES])
    return RawBoxColumns(
        values=written_boxes(index, layout, z),
        frame=np.repeat(np.arange(index.num_frames), np.diff(index.boxes.first)),
        is_vehicle=is_vehicle[index.boxes.category],
        velocity=index.boxes.velocity[:, :2],
        instance=index.boxes.instance if has_instances else None,
        time=index.frames.time,
        world_from_base=poses.joined(index.frames.world_from_ego, index.frames.ego_from_base),
        ego_from_base=index.frames.ego_from_base,
    )


def moved_along(columns, num_moving, *, sign=1, num_others=0):
    """Velocities along yaw = ``sign`` of column 6 of the first objects, along the other sign of some more."""
    velocity = np.full_like(columns.velocity, np.nan)
    # Where the two signs are far from each other.
    rows = np.flatnonzero(np.abs(np.cos(2 * columns.values[:, 6] + np.pi / 2)) < 0.3)
    rows = rows[columns.is_vehicle[rows]][: num_moving + num_others]
    for number, row in enumerate(rows):
        of_sign = sign if number < num_moving else -sign
        yaw = columns.values[row, 6] if of_sign > 0 else -columns.values[row, 6] - np.pi / 2
        velocity[row] = 5 * np.cos(yaw), 5 * np.sin(yaw)
    return attrs.evolve(columns, velocity=velocity, instance=None)


def assert_decodes(convention, columns, index):
    center, size, yaw = convention.decoded(columns.values)
    np.testing.assert_allclose(center, index.boxes.center, atol=1e-9)
    np.testing.assert_allclose(size, index.boxes.size, atol=1e-12)
    turn = np.abs((poses.quaternion_of_yaw(yaw) * index.boxes.rotation).sum(-1))
    np.testing.assert_allclose(turn, 1, atol=1e-12)


@pytest.mark.parametrize(("layout", "z"), list(itertools.product(LAYOUTS, Z_PLACES)))
def test_each_is_found(layout, z):
    index = driving_scenes(3, num_objects=30)
    columns = columns_of(index, layout, z)
    convention = convention_of(columns, None, None, "infos.pkl")
    assert (convention.layout, convention.z) == (layout, z)
    assert convention.how == "found: boxes_convention and z"
    assert_decodes(convention, columns, index)
    assert convention_of(columns, layout, z, "infos.pkl").how == "stated: boxes_convention and z"


@given(
    seed=st.integers(0, 10_000),
    layout=st.sampled_from(LAYOUTS),
    z=st.sampled_from(Z_PLACES),
    num_objects=st.integers(1, 15),
    num_moving=st.integers(0, 15),
    noise=st.sampled_from([0.0, 0.2, 1.0]),
    has_instances=st.booleans(),
    has_velocities=st.booleans(),
)
def test_it_is_found_or_refused_but_never_wrong(
    seed, layout, z, num_objects, num_moving, noise, has_instances, has_velocities
):
    index = driving_scenes(seed, lengths=(3, 2), num_objects=num_objects, num_moving=num_moving, noise=noise)
    columns = columns_of(index, layout, z, has_instances=has_instances)
    if not has_velocities:
        columns = attrs.evolve(columns, velocity=np.full_like(columns.velocity, np.nan))
    with contextlib.suppress(SettingError):
        found = convention_of(columns, None, None, "infos.pkl")
        assert (found.layout, found.z) == (layout, z)
    convention = convention_of(columns, layout, z, "infos.pkl")
    assert (convention.layout, convention.z) == (layout, z)
    assert_decodes(convention, columns, index)


def test_tracks_tell_where_there_are_no_velocities():
    columns = columns_of(driving_scenes(5, num_objects=30), "w,l,h,-yaw-pi/2")
    columns = attrs.evolve(columns, velocity=np.full_like(columns.velocity, np.nan))
    convention = convention_of(columns, None, None, "infos.pkl")
    assert convention.layout == "w,l,h,-yaw-pi/2"
    lines = "\n".join(convention.evidence)
    assert re.search(r"velocities: of 0 moving .*: not decided", lines)
    assert re.search(
        r"tracks: of \d+ moving vehicles, 0 go along yaw = column 6, .*: column 6 is -yaw - pi/2", lines
    )


class TestDoubt:
    def test_too_few_that_move(self):
        """Two conventions have the width first; only directions tell which one it is."""
        columns = columns_of(driving_scenes(1, num_objects=30, num_moving=1), "w,l,h,yaw")
        with pytest.raises(SettingError, match="leave in doubt the columns of sizes and yaw") as caught:
            convention_of(columns, None, None, "infos.pkl")
        message = str(caught.value)
        assert re.search(r"velocities: of [1-9] moving objects, .*: not decided", message)
        assert re.search(r"sizes: of \d+ boxes of vehicles, column 3 is the longer in \d+", message)
        assert "State it: `boxes_convention` is one of 'l,w,h,yaw'" in message
        assert (
            "those of BEVFormer, VAD, DETR3D, BEVFusion and mmdetection3d before 1.0 'w,l,h,-yaw-pi/2'" in message
        )
        stated = convention_of(columns, "w,l,h,yaw", None, "infos.pkl")
        assert (stated.how, stated.warning) == ("stated: boxes_convention; found: z", "")

    @pytest.mark.parametrize("has_instances", [True, False])
    def test_pedestrians_only(self, has_instances):
        """Directions tell the sign of yaw, but nothing tells which column is the length."""
        columns = columns_of(driving_scenes(1, num_objects=30), "l,w,h,yaw", has_instances=has_instances)
        columns = attrs.evolve(columns, is_vehicle=np.zeros(len(columns.frame), bool))
        with pytest.raises(SettingError, match=r"sizes: of 0 boxes of vehicles, .*: not decided\n.*is yaw"):
            convention_of(columns, None, None, "infos.pkl")

    def test_few_vehicles(self):
        columns = columns_of(driving_scenes(1, lengths=(2,), num_objects=6, num_moving=0), "l,w,h,yaw")
        with pytest.raises(SettingError, match=r"sizes: of \d boxes of vehicles, .*: not decided"):
            convention_of(columns, None, "center", "infos.pkl")

    def test_few_that_drive_along_the_other_sign(self):
        """Sizes say that the length is first, but the only known convention that has it is contradicted."""
        columns = moved_along(columns_of(driving_scenes(1, num_objects=30), "l,w,h,yaw"), 4, sign=-1)
        with pytest.raises(SettingError, match=r"velocities: of 4 moving .*: not decided") as caught:
            convention_of(columns, None, None, "infos.pkl")
        assert "leave in doubt the columns of sizes and yaw" in str(caught.value)

    def test_objects_that_drive_sideways(self):
        columns = columns_of(driving_scenes(1, num_objects=30), "l,w,h,yaw")
        turned = np.column_stack([-columns.velocity[:, 1], columns.velocity[:, 0]])
        with pytest.raises(SettingError, match="leave in doubt the columns of sizes and yaw"):
            convention_of(attrs.evolve(columns, velocity=turned, instance=None), None, None, "infos.pkl")

    def test_velocities_and_tracks_that_disagree(self):
        columns = columns_of(driving_scenes(1, num_objects=30), "l,w,h,yaw")
        mirrored = -columns.velocity[:, ::-1]  # as if column 6 was -yaw - pi/2
        with pytest.raises(SettingError, match=r"column 6 is -yaw - pi/2\n.*: column 6 is yaw"):
            convention_of(attrs.evolve(columns, velocity=mirrored), None, None, "infos.pkl")

    def test_sizes_and_directions_that_no_known_convention_has(self):
        columns = columns_of(driving_scenes(1, num_objects=30), "w,l,h,-yaw-pi/2")
        values = columns.values[:, [0, 1, 2, 4, 3, 5, 6]]
        with pytest.raises(SettingError, match="leave in doubt the columns of sizes and yaw"):
            convention_of(attrs.evolve(columns, values=values), None, None, "infos.pkl")

    def test_heights_of_boxes_that_float(self):
        columns = columns_of(driving_scenes(1, num_objects=30), "l,w,h,yaw")
        values = columns.values.copy()
        values[:, 2] += np.random.default_rng(0).normal(size=len(values)) * 5
        with pytest.raises(SettingError, match=r'leave in doubt whether z is .* \(`z="center"` or `z="bottom"`\)'):
            convention_of(attrs.evolve(columns, values=values), None, None, "infos.pkl")

    def test_heights_and_ground_that_disagree(self):
        columns = columns_of(driving_scenes(1, num_objects=30), "l,w,h,yaw")
        values = columns.values.copy()
        values[:, 2] -= np.median(values[:, 5]) / 2
        with pytest.raises(SettingError, match=r"0: bottom\): center\n.*high\): bottom"):
            convention_of(attrs.evolve(columns, values=values), None, None, "infos.pkl")

    def test_one_height_is_enough_where_the_ground_is_known(self):
        index = driving_scenes(1, num_objects=30)
        is_car = index.boxes.category == 0
        columns = columns_of(index, "l,w,h,yaw", "bottom")
        columns = attrs.evolve(
            columns,
            **{name: getattr(columns, name)[is_car] for name in ("values", "frame", "is_vehicle", "velocity")},
            instance=columns.instance[is_car],
        )
        convention = convention_of(columns, None, None, "infos.pkl")
        assert convention.z == "bottom"
        assert re.search("too few or too equal in height .*: not decided", "\n".join(convention.evidence))


class TestLikely:
    """Sizes say what it is, directions do not contradict, but are no proof: found with a warning."""

    @pytest.mark.parametrize(("num_moving", "num_others"), [(0, 0), (1, 0), (9, 0), (12, 8), (2, 4)])
    def test_length_first(self, num_moving, num_others):
        index = driving_scenes(1, num_objects=30)
        columns = moved_along(columns_of(index, "l,w,h,yaw"), num_moving, num_others=num_others)
        convention = convention_of(columns, None, None, "infos.pkl")
        assert (convention.layout, convention.z) == ("l,w,h,yaw", "center")
        assert convention.how == "found: boxes_convention (not sure) and z"
        assert_decodes(convention, columns, index)
        first, *lines, last = convention.warning.splitlines()
        assert first == (
            "'infos.pkl': columns 3 to 6 of the boxes are read as 'l,w,h,yaw': the sizes say so. The directions "
            "in which objects move do not contradict it, but are no proof:"
        )
        assert lines == [f"  - {line}" for line in convention.evidence]
        assert last.startswith("Pass `boxes_convention='l,w,h,yaw'`, or the right one of 'l,w,h,yaw', 'w,l,h,-yaw")
        for layout in ("l,w,h,yaw", None):
            stated = convention_of(columns, layout, "center", "infos.pkl")
            assert (stated.warning == "") == (layout is not None)

    @pytest.mark.parametrize("layout", LAYOUTS[1:])
    def test_width_first_and_most_that_move(self, layout):
        index = driving_scenes(1, num_objects=30)
        columns = moved_along(columns_of(index, layout), 24, sign=-1 if "-yaw" in layout else 1, num_others=7)
        convention = convention_of(columns, None, None, "infos.pkl")
        assert convention.layout == layout
        assert "the sizes, and where most objects go, say so" in convention.warning
        assert_decodes(convention, columns, index)

    def test_none_where_it_is_sure(self):
        for layout in LAYOUTS:
            assert (
                convention_of(columns_of(driving_scenes(3, num_objects=30), layout), None, None, "x").warning == ""
            )


class TestContradiction:
    @pytest.mark.parametrize(("true", "stated"), list(itertools.permutations(LAYOUTS, 2)))
    def test_of_the_columns(self, true, stated):
        columns = columns_of(driving_scenes(2, num_objects=30), true)
        with pytest.raises(SettingError) as caught:
            convention_of(columns, stated, None, "infos.pkl")
        message = str(caught.value)
        assert f"`boxes_convention={stated!r}` contradicts the boxes, which are {true!r}" in message
        assert re.search(r"sizes: of \d+ boxes of vehicles, column 3 is the longer in \d+", message)
        assert re.search(r"velocities: of \d+ moving vehicles, \d+ go along yaw = column 6", message)

    @pytest.mark.parametrize(("true", "stated"), [Z_PLACES, Z_PLACES[::-1]])
    def test_of_z(self, true, stated):
        columns = columns_of(driving_scenes(2, num_objects=30), "l,w,h,yaw", true)
        with pytest.raises(SettingError, match=f"`z='{stated}'` contradicts the boxes, whose z is of the {true}"):
            convention_of(columns, None, stated, "infos.pkl")

    def test_of_what_alone_is_sure(self):
        """Sizes alone tell that the length is first, though nothing moves."""
        columns = columns_of(driving_scenes(2, num_objects=30, num_moving=0), "l,w,h,yaw")
        with pytest.raises(SettingError, match="`boxes_convention='w,l,h,yaw'` contradicts the boxes:"):
            convention_of(columns, "w,l,h,yaw", None, "infos.pkl")


def test_tilted_vehicles_do_not_disturb():
    """z is compared within frames, and the ground by the pose of the lidar."""
    index = driving_scenes(4, num_objects=30)
    tilt = poses.pose_of_quaternion([1, 0.02, 0.01, 0], [0, 0, 0.3])
    columns = attrs.evolve(
        columns_of(index, "w,l,h,yaw"), world_from_base=poses.joined(tilt, index.frames.world_from_ego)
    )
    assert convention_of(columns, None, None, "infos.pkl").z == "center"
