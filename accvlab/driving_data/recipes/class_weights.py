# SPDX-License-Identifier: Apache-2.0
"""Weights of samples by their classes, for a `WeightedSampler`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import number, setting_error, shown
from accvlab.dali_pipeline_framework.errors import SettingError

Float64Array = npt.NDArray[np.float64]
Labels = Sequence[Hashable] | Sequence[Iterable[Hashable]] | npt.NDArray[np.generic]

_SEVERAL = (list, tuple, set, frozenset, np.ndarray)


def class_balanced_weights(
    labels: Labels, *, power: float = 1.0, weight_without_label: float | None = None
) -> Float64Array:
    """Compute the weights with which rare classes are drawn more often.

    The weight of a class is ``1 / count ** power``, where ``count`` is the number of samples that have it. With
    one label per sample, ``power=1`` draws all classes equally often, ``power=0`` all samples, and ``power=0.5``
    lies between the two: square-root balancing, as in Mahajan et al., "Exploring the limits of weakly supervised
    pretraining" (2018).

    A sample with several labels has the weight of its rarest class, as in Gupta et al., "LVIS" (2019): a street
    with a bicycle is drawn as often as bicycles need, however many cars are in it. So classes that occur together
    with rare ones are drawn more often than with one label per sample.

    Args:
        labels: One entry per sample: ``(N,)`` integers or texts, or a sequence of anything hashable. Or a
            sequence of lists, tuples, sets or arrays ``(num_labels,)`` of labels: a label that is in a list
            twice counts once.
        power: Exponent of the count, at least 0.
        weight_without_label: Weight of a sample without a label (an empty list, or None), relative to the mean
            weight of samples with labels: 0 to never draw it, 1 to draw it as often as others.

    Returns:
        ``(N,)`` float64, the sum is 1.

    Raises:
        SettingError: There is no sample or none with a label, a label is NaN or not hashable, only some samples
            have lists of labels, a sample has no label and ``weight_without_label`` is not given, or a number
            is out of range.

    Example::

        >>> class_balanced_weights(["car", "car", "bus", "car"]).round(3).tolist()
        [0.167, 0.167, 0.5, 0.167]
        >>> class_balanced_weights([["car"], ["car", "bus"], []], weight_without_label=0).round(3).tolist()
        [0.333, 0.667, 0.0]
    """
    power = number(power, "power", at_least=0)
    if weight_without_label is not None:
        weight_without_label = number(weight_without_label, "weight_without_label", at_least=0)
    labels_of_samples = _as_list(labels)
    if not labels_of_samples:
        raise SettingError("`labels` must have one entry per sample, got none.")
    counts = _counts_of_labels(labels_of_samples)  # NaN for samples without a label
    unlabelled = np.isnan(counts)
    if unlabelled.all():
        raise SettingError(f"No sample has a label: nothing can be balanced among {len(counts)} sample(s).")
    weights = (np.nanmin(counts) / counts) ** power  # of the rarest class 1, so that no power underflows for all
    if unlabelled.any():
        if weight_without_label is None:
            raise SettingError(
                f"Sample {int(np.argmax(unlabelled))} has no label, as {int(unlabelled.sum())} of {len(counts)} "
                f"sample(s). Give `weight_without_label`: 0 to never draw them, 1 to draw them as often as an "
                f"average sample with a label."
            )
        weights[unlabelled] = weight_without_label * weights[~unlabelled].mean()
    return np.asarray(weights / weights.sum())


def _as_list(labels: Labels) -> list[Any]:
    if hasattr(labels, "__array__"):
        array = np.asarray(labels)
        if array.ndim != 1:
            raise SettingError(
                f"`labels` as an array must be of shape (N,), got {array.shape}. For several labels per sample "
                f"pass a list of lists; for a table of yes and no: [np.flatnonzero(row) for row in table]."
            )
        return [*array] if array.dtype.kind in "mM" else array.tolist()
    if isinstance(labels, str | bytes | Mapping | Set) or not isinstance(labels, Iterable):
        raise setting_error("labels", "a sequence with one entry per sample", labels)
    return list(labels)


def _counts_of_labels(labels: list[Any]) -> Float64Array:
    """Count for each sample the samples with its rarest label, ``(N,)``; NaN where it has no label."""
    labelled = [sample for sample, label in enumerate(labels) if label is not None]
    several = [sample for sample in labelled if isinstance(labels[sample], _SEVERAL)]
    if several and len(several) < len(labelled):
        single = next(sample for sample in labelled if not isinstance(labels[sample], _SEVERAL))
        got = f"labels[{several[0]}] is {shown(labels[several[0]])}, labels[{single}] is {shown(labels[single])}."
        raise SettingError(f"`labels` must have either one label per sample or a list of labels per sample: {got}")
    per_sample = [
        _distinct(sample, () if label is None else label if several else (label,))
        for sample, label in enumerate(labels)
    ]
    counts = Counter(label for of_sample in per_sample for label in of_sample)
    return np.array(
        [min((counts[label] for label in of_sample), default=math.nan) for of_sample in per_sample],
        dtype=np.float64,
    )


def _distinct(sample: int, labels: Iterable[Any]) -> set[Hashable]:
    if isinstance(labels, np.ndarray):
        labels = labels.reshape(-1).tolist()
    try:
        distinct = set(labels)
    except TypeError as error:
        rule = "A label must be hashable (a number, a text, ...)"
        raise SettingError(f"{rule}, but labels[{sample}] is {shown(labels)}.") from error
    if any(isinstance(label, float | np.floating) and math.isnan(label) for label in distinct):
        advice = "For a sample without a label pass None in a list (with `weight_without_label`)."
        raise SettingError(f"A label must not be NaN, but that of sample {sample} is. {advice}")
    return distinct
