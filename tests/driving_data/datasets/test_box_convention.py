"""What columns of boxes mean: stated, said by the form, contradicted, or refused."""

import itertools

import attrs
import numpy as np
import pytest
from driving_support.info_pickles import CATEGORIES, driving_scenes, written_boxes
from hypothesis import given
from hypothesis import strategies as st
from support.refusals import assert_refused

from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.datasets.infos.box_convention import (
    LAYOUTS,
    Z_PLACES,
    RawBoxColumns,
    checked_layout,
    decoded,
    is_name_of_vehicle,
)


def columns_of(index, layout, z="center"):
    is_vehicle = np.array([is_name_of_vehicle(name) for name in CATEGORIES])
    return RawBoxColumns(
        values=written_boxes(index, layout, z),
        frame=np.repeat(np.arange(index.num_frames), np.diff(index.boxes.first)),
        is_vehicle=is_vehicle[index.boxes.category],
        velocity=index.boxes.velocity[:, :2],
        ego_from_base=index.frames.ego_from_base,
    )


def layout_of(columns, layout=None, z="center", *, is_data_list=False):
    return checked_layout(columns, layout, z, "infos.pkl", is_data_list=is_data_list)


@given(
    seed=st.integers(0, 10_000),
    layout=st.sampled_from(LAYOUTS),
    z=st.sampled_from(Z_PLACES),
    num_objects=st.integers(1, 15),
    num_moving=st.integers(0, 15),
    noise=st.sampled_from([0.0, 0.2, 1.0]),
)
def test_what_is_true_is_never_refused_and_decoded(seed, layout, z, num_objects, num_moving, noise):
    index = driving_scenes(seed, lengths=(3, 2), num_objects=num_objects, num_moving=num_moving, noise=noise)
    columns = columns_of(index, layout, z)
    assert layout_of(columns, layout, z) == layout
    center, size, yaw = decoded(columns.values, layout, z)
    np.testing.assert_allclose(center, index.boxes.center, atol=1e-9)
    np.testing.assert_allclose(size, index.boxes.size, atol=1e-12)
    turn = np.abs((poses.quaternion_of_yaw(yaw) * index.boxes.rotation).sum(-1))
    np.testing.assert_allclose(turn, 1, atol=1e-12)


def test_the_form_says_it():
    lengths_first = columns_of(driving_scenes(3, num_objects=30), "l,w,h,yaw")
    assert layout_of(lengths_first) == "l,w,h,yaw"
    too_few = columns_of(driving_scenes(1, lengths=(2,), num_objects=3, num_moving=0), "l,w,h,yaw")
    assert layout_of(too_few, is_data_list=True) == "l,w,h,yaw"


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_what_the_form_does_not_say_is_to_be_stated(layout):
    columns = columns_of(driving_scenes(3, num_objects=30), layout)
    standing = columns_of(driving_scenes(1, num_objects=30, num_moving=0), layout)
    of_pedestrians = attrs.evolve(columns, is_vehicle=np.zeros(len(columns.frame), bool))
    words = "does not say what columns 3 to 6 of its boxes are...sizes: column 3 is 0...times column 4 (median of"
    assert_refused(lambda: layout_of(columns), f"{words}...What fits the boxes: {layout!r}.")
    words = "of BEVFormer, VAD, DETR3D, BEVFusion and mmdetection3d before 1.0 'w,l,h,-yaw-pi/2'"
    assert_refused(lambda: layout_of(columns), words)
    words = "What fits the boxes: 'w,l,h,-yaw-pi/2', 'w,l,h,yaw'."
    assert_refused(lambda: layout_of(standing), words)
    assert_refused(lambda: layout_of(of_pedestrians), "median of 0 boxes")
    words = "`boxes_convention='l,w,h,yaw'` contradicts the boxes"
    assert_refused(lambda: layout_of(columns, is_data_list=True), words)


@pytest.mark.parametrize(("true", "stated"), list(itertools.permutations(LAYOUTS, 2)))
def test_a_contradiction_is_refused(true, stated):
    columns = columns_of(driving_scenes(2, num_objects=30), true)
    words = (
        f"`boxes_convention={stated!r}` contradicts the boxes...moving objects, ...go along yaw = column 6, ..."
    )
    assert_refused(lambda: layout_of(columns, stated), f"{words}What fits the boxes: {true!r}.")


@pytest.mark.parametrize(("true", "stated"), [Z_PLACES, Z_PLACES[::-1]])
def test_a_contradiction_of_z_is_refused(true, stated):
    columns = columns_of(driving_scenes(2, num_objects=30), "l,w,h,yaw", true)
    words = f"`z='{stated}'` contradicts the boxes:\n  - ground: objects stand"
    assert_refused(lambda: layout_of(columns, z=stated), words)
