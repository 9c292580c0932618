"""What the demo trains: a small network that predicts what each camera sees next.

The input of the network is the frame that the same batch slot showed before. That needs a loader that plays
sequences in slots, and a memory that starts anew where a sequence starts.
"""

import random
import statistics
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import attrs
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from accvlab.dali_pipeline_framework import DataLoader

__all__ = [
    "Bookmark",
    "NextFramePredictor",
    "NothingToLearnError",
    "SlotMemory",
    "TrainingReport",
    "delivers_the_same",
    "seed_everything",
    "train",
]

_SMALL_HEIGHT_PX = 32
_NUM_BATCHES_AFTER_BOOKMARK = 2
_NUM_STEPS_OF_FINAL_LOSS = 5


class NothingToLearnError(ValueError):
    """No frame had one before it in its sequence."""


class NextFramePredictor(nn.Module):
    """Predicts a small picture from the one before; the same weights for all cameras.

    The fine branch keeps edges where they are; the coarse one, at half the resolution, sees far enough to
    blur what moves.
    """

    def __init__(self, num_channels: int = 24) -> None:
        """Make the layers."""
        super().__init__()
        self.fine = nn.Conv2d(3, num_channels, 3, padding=1)
        self.coarse = nn.Sequential(
            nn.Conv2d(num_channels, num_channels, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(num_channels, num_channels, 3, padding=1),
            nn.ReLU(),
        )
        self.exit = nn.Conv2d(2 * num_channels + 3, 3, 3, padding=1)

    def forward(self, previous: torch.Tensor) -> torch.Tensor:
        """Predict (B, 3, h, w) from the pictures before, of the same shape."""
        fine = functional.relu(self.fine(previous))
        coarse = functional.interpolate(self.coarse(fine), size=fine.shape[2:], mode="bilinear")
        return self.exit(torch.cat([previous, fine, coarse], dim=1))


class SlotMemory:
    """Keeps, for each slot of the batch, what it showed last.

    Slot by slot, with A and B sequences in one slot::

        shown          A0  A1  A2  B0  B1
        remembered     -   A0  A1  -   B0
    """

    def __init__(self) -> None:
        """Start without a memory."""
        self._last: torch.Tensor | None = None

    def exchange(self, current: torch.Tensor, is_first: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Give the current frames and get the ones before.

        Args:
            current: (B, ...), one per slot.
            is_first: (B,), whether there is nothing to remember: a sequence starts here, or the slot is padded.

        Returns:
            The current and the previous frames of those slots that have one before; None if none has.
        """
        last, self._last = self._last, current
        if last is None or bool(is_first.all()):
            return None
        return current[~is_first], last[~is_first]


@attrs.frozen
class Bookmark:
    """Where a loader stood, and what it delivered next.

    Attributes:
        state: Its state then.
        following: The next batches; none if the epoch was too short.
    """

    state: dict[str, Any]
    following: list[dict[str, Any]]


@attrs.frozen
class TrainingReport:
    """What came out of a training.

    Attributes:
        first_loss: Mean squared error of the first step that had something to predict.
        final_loss: The same, mean of the last steps.
        repeating_loss: What repeating the previous frame would have had in the last steps.
        samples_per_s: Median over the steps, without the first.
        images_per_s: The same for single pictures.
        kept_batch: One batch as delivered by the loader.
        bookmark: The middle of the first epoch.
    """

    first_loss: float
    final_loss: float
    repeating_loss: float
    samples_per_s: float
    images_per_s: float
    kept_batch: dict[str, Any]
    bookmark: Bookmark


def seed_everything(seed: int) -> None:
    """Seed all generators of random numbers in this process."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def train(
    loader: DataLoader,
    num_epochs: int,
    num_batches_per_epoch: int,
    *,
    device: torch.device,
    kept_batch: int,
    on_step: Callable[[float, float], None],
) -> TrainingReport:
    """Train a `NextFramePredictor`.

    Args:
        loader: Each of its samples has a group "place" that tells where it stands.
        num_epochs: How often to iterate.
        num_batches_per_epoch: After how many batches to stop; the next epoch begins then.
        device: Where the network is trained.
        kept_batch: Number of the batch to keep for the report, from 0; the last one if there are fewer.
        on_step: Called after each step with its loss, and with samples per second so far, as in the report.

    Raises:
        NothingToLearnError: No slot ever had a frame before, so there was nothing to predict.
    """
    network = NextFramePredictor().to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
    memory = SlotMemory()
    losses: list[tuple[float, float]] = []  # of the prediction, of repeating the previous frame
    durations_s: list[float] = []
    kept: dict[str, Any] = {}
    middle = max(1, num_batches_per_epoch // 2)
    bookmark = Bookmark({}, [])
    for epoch in range(num_epochs):
        start_s = time.perf_counter()
        for number, batch in enumerate(islice(loader, num_batches_per_epoch)):
            pictures = small_pictures(batch, device)  # (B, C, 3, h, w)
            place = batch["place"]
            pair = memory.exchange(pictures, (place["is_first"] | place["is_padding"]).to(device))
            if pair is not None:
                losses.append(_learn(network, optimizer, *pair))
            now_s = time.perf_counter()
            durations_s.append(now_s - start_s)
            start_s = now_s
            if len(durations_s) <= kept_batch + 1:
                kept = batch
            if epoch == 0 and number + 1 == middle:
                bookmark = Bookmark(loader.state_dict(), [])
            elif epoch == 0 and middle <= number < middle + _NUM_BATCHES_AFTER_BOOKMARK:
                bookmark.following.append(batch)
            on_step(losses[-1][0] if losses else float("nan"), _samples_per_s(len(pictures), durations_s))
    if not losses:
        raise NothingToLearnError(
            f"Nothing was learnt: no frame of {len(durations_s)} batches had one before it in its sequence."
        )
    last = losses[-_NUM_STEPS_OF_FINAL_LOSS:]
    samples_per_s = _samples_per_s(len(pictures), durations_s)
    return TrainingReport(
        first_loss=losses[0][0],
        final_loss=statistics.fmean(loss for loss, _ in last),
        repeating_loss=statistics.fmean(loss for _, loss in last),
        samples_per_s=samples_per_s,
        images_per_s=samples_per_s * pictures.shape[1],
        kept_batch=kept,
        bookmark=bookmark,
    )


def _samples_per_s(num_samples: int, durations_s: list[float]) -> float:
    """Samples per second, median over the steps; the first one, in which workers start, is left out."""
    return num_samples / statistics.median(durations_s[1:] or durations_s)


def delivers_the_same(loader: DataLoader, bookmark: Bookmark) -> bool:
    """Continue at a bookmark, and compare what is delivered, field by field and bit by bit."""
    loader.load_state_dict(bookmark.state)
    return all(_are_equal(was, now) for was, now in zip(bookmark.following, loader, strict=False))


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_are_equal(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    if isinstance(one, torch.Tensor):  # velocities that are not known are NaN
        return np.array_equal(one.cpu().numpy(), other.cpu().numpy(), equal_nan=one.is_floating_point())
    return bool(one == other)


def small_pictures(batch: dict[str, Any], device: torch.device) -> torch.Tensor:
    """All cameras of a batch in low resolution: (B, C, 3, h, w) in [0, 1]."""
    images = torch.stack([camera["image"].to(device) for camera in batch["cameras"].values()], dim=1)
    height_px, width_px = images.shape[-2:]
    small_hw = (_SMALL_HEIGHT_PX, max(1, round(_SMALL_HEIGHT_PX * width_px / height_px)))
    small = functional.interpolate(images.flatten(0, 1), size=small_hw, mode="area")
    return small.unflatten(0, images.shape[:2])


def _learn(
    network: nn.Module, optimizer: torch.optim.Optimizer, current: torch.Tensor, previous: torch.Tensor
) -> tuple[float, float]:
    current, previous = current.flatten(0, 1), previous.flatten(0, 1)  # cameras are samples here
    loss = functional.mse_loss(network(previous), current)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item(), functional.mse_loss(previous, current).item()
