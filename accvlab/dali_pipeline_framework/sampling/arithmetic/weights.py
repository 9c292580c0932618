# SPDX-License-Identifier: Apache-2.0
"""Weights of samples and classes, and draws by them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import numpy.typing as npt

from ...checks import number, setting_error, shown
from ...draws.keyed_draws import UInt64Array, random_uniform
from ...errors import SettingError

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
        power: From 0 on.
        weight_without_label: Weight of a sample that has no label (an empty list, or None), relative to the
            mean weight of those that have one: 0 to never draw it, 1 to draw it as often as others.

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
    return _weights_of_counts(_counts_of_labels(labels_of_samples), power, weight_without_label)


def checked_weights(weights: npt.ArrayLike, expected_count: int | None = None) -> Float64Array:
    """Check weights with which items are drawn.

    Args:
        weights: ``(N,)`` numbers of at least 0 and not all 0; they need not add up to 1.
        expected_count: What ``N`` must be; None for any number of at least 1.

    Returns:
        ``(N,)`` float64, a copy.
    """
    try:
        given = np.asarray(weights)
        if given.dtype.kind not in "biufO":
            raise TypeError
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise setting_error("weights", "a sequence of numbers", weights) from error
    if array.ndim != 1 or not array.size:
        raise SettingError(f"`weights` must be of shape (N,) with N > 0, got shape {array.shape}.")
    if expected_count is not None and len(array) != expected_count:
        raise SettingError(f"`weights` must have {expected_count} weights, one per item, got {len(array)}.")
    bad = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if bad.size:
        raise SettingError(
            f"`weights` must be finite and at least 0, but weights[{bad[0]}] is {array[bad[0]]}"
            f"{f' (and {bad.size - 1} more are wrong)' if bad.size > 1 else ''}."
        )
    if not array.any():
        raise SettingError(f"`weights` must not all be 0: with these {len(array)} weights nothing can be drawn.")
    return array


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


def _weights_of_counts(counts: Float64Array, power: float, weight_without_label: float | None) -> Float64Array:
    """Normalised weights; ``counts`` is NaN for samples without a label."""
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
    normalised: Float64Array = weights / weights.sum()
    return normalised


class WeightedChoice:
    """Draws items with replacement, each with a chance in proportion to its weight.

    Draw ``i`` of a key is a function of the two: the item at which the running sum of the weights exceeds a
    random part of the total. An item of weight 0 is never drawn. Memory: 8 bytes per item.

    Example::

        >>> WeightedChoice([1, 0, 3]).draw(7, np.arange(8)).tolist()
        [2, 0, 2, 2, 2, 0, 2, 2]
    """

    def __init__(self, weights: npt.ArrayLike) -> None:
        """Add up the weights: ``(N,)``, at least 0 and not all 0; they need not add up to 1."""
        checked = checked_weights(weights)
        # Scaling by a power of two is exact. It keeps the sum from overflowing, and from being so small (denormal)
        # that few values lie below it.
        scaled = np.ldexp(checked, -math.frexp(checked.max())[1])
        self._thresholds = np.cumsum(scaled)

    def draw(self, key: int | UInt64Array, counters: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Draw an item for each counter of a key.

        Args:
            key: A key of 64 bits, or an array of them that broadcasts against ``counters``.
            counters: ``(n,)``, which draws of the key: whole numbers of at least 0.

        Returns:
            ``(n,)`` int64, each in ``[0, N)``.
        """
        # random_uniform is at most 1 - 2**-53, so the product rounds to less than the total, and searchsorted
        # never returns N.
        parts_of_total = random_uniform(key, counters) * self._thresholds[-1]
        items: npt.NDArray[np.int64] = np.searchsorted(self._thresholds, parts_of_total, side="right")
        return items


Int64Array = npt.NDArray[np.int64]


def torch_generator(seed: int) -> Any:
    """Make a generator with a seed; a `SettingError` where PyTorch is not installed."""
    try:
        import torch
    except ImportError as error:
        raise SettingError(
            "This order is that of PyTorch's generator, and PyTorch is not installed: "
            'pip install "accvlab.dali_pipeline_framework[torch]". Other samplers of this package do not need it.'
        ) from error
    return torch.Generator().manual_seed(seed)


def torch_permutation(count: int, generator: Any) -> Int64Array:
    """Get ``torch.randperm``, ``(count,)``."""
    import torch

    return np.asarray(torch.randperm(count, generator=generator).numpy(), np.int64)
