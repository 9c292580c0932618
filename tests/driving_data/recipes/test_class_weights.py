"""Weights with which samples are drawn."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.driving_data.recipes import class_balanced_weights


@given(labels=st.lists(st.integers(-3, 3), min_size=1, max_size=60), power=st.floats(0, 3))
@settings(deadline=None)
def test_weights_follow_the_formula(labels: list[int], power: float) -> None:
    counts = Counter(labels)
    raw = [counts[label] ** -power for label in labels]
    weights = class_balanced_weights(labels, power=power)
    assert weights.dtype == np.float64
    assert weights.tolist() == pytest.approx([each / sum(raw) for each in raw])
    for others in (np.array(labels), [[label] for label in labels]):
        assert class_balanced_weights(others, power=power).tolist() == weights.tolist()


@pytest.mark.parametrize(
    "labels",
    [
        ("car", "bus", "car", "car"),
        np.array(["car", "bus", "car", "car"], dtype=object),
        np.array([False, True, False, False]),
        [np.int64(3), 1, 3, np.int32(3)],
        [b"car", "car", b"car", b"car"],
        [1, "1", 1, 1],
    ],
    ids=repr,
)
def test_labels_of_any_kind(labels: Any) -> None:
    assert class_balanced_weights(labels).tolist() == pytest.approx([1 / 6, 1 / 2, 1 / 6, 1 / 6])


def test_a_large_power_leaves_only_the_rarest() -> None:
    assert class_balanced_weights([*[0] * 1000, 1, 1], power=2000).tolist() == [0.0] * 1000 + [0.5] * 2


def test_of_several_labels_the_rarest_counts() -> None:
    # Samples with a car: 4, with a bus: 2, with a bike: 1.
    labels = [["car"], ["car", "bus"], ["car", "car", "car"], ["bus", "bike", "car"]]
    for power in (0, 0.5, 1):
        raw = np.array([1 / 4, 1 / 2, 1 / 4, 1]) ** power
        for kind in (list, tuple, set, frozenset, np.array):
            found = class_balanced_weights([*map(kind, labels)], power=power)  # type: ignore[call-overload]
            assert found.tolist() == pytest.approx((raw / raw.sum()).tolist())


@pytest.mark.parametrize("labels", [["a", None, "b"], [["a"], [], ["b"]], [["a"], None, {"b"}]])
def test_samples_without_a_label_have_the_weight_that_is_given(labels: Any) -> None:
    with pytest.raises(SettingError, match=r"Sample 1 has no label.*`weight_without_label`: 0 to never draw"):
        class_balanced_weights(labels)
    assert class_balanced_weights(labels, weight_without_label=0).tolist() == [0.5, 0, 0.5]
    assert class_balanced_weights(labels, weight_without_label=2).tolist() == [0.25, 0.5, 0.25]  # of the mean
    assert class_balanced_weights(["a", "b"], weight_without_label=5).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], "one entry per sample, got none"),
        ("car", "sequence with one entry per sample, got 'car'"),
        ({1, 2}, "sequence with one entry per sample"),
        (np.eye(3), r"must be of shape \(N,\), got \(3, 3\).*np.flatnonzero"),
        ([[1.0], [2.0, np.float32("nan")]], "NaN, but that of sample 1 is"),
        (np.array([1.0, 2.0, np.nan]), "NaN, but that of sample 2 is"),
        ([[1], [[2]]], r"hashable .*, but labels\[1\] is \[\[2\]\]"),
        ([["a"], "b"], r"either one label per sample or a list.*labels\[0\] is \['a'\], labels\[1\] is 'b'"),
        ([None, [], None], r"No sample has a label: .* 3 sample\(s\)"),
    ],
)
def test_bad_labels_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        class_balanced_weights(labels)


def test_bad_numbers_are_refused() -> None:
    for name in ("power", "weight_without_label"):
        with pytest.raises(SettingError, match=f"`{name}` must be a number of at least 0, got -0.1"):
            class_balanced_weights([1, 2], **{name: -0.1})
