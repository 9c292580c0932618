"""What scenes are generated from."""

import math
import numbers

import attrs

from driving_scenes.errors import SettingsError

__all__ = ["SceneSettings"]

_SMALLEST_SIDE_PX = 32
_LARGEST_SIDE_PX = 4096


def _pair(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value  # the command line gives lists


@attrs.frozen(kw_only=True)
class SceneSettings:
    """All settings of the generator; equal settings give equal scenes.

    Raises:
        SettingsError: a setting breaks its rule; the message lists all of them.

    Example:
        >>> SceneSettings(num_sequences=2).frames_per_sequence
        (8, 14)
    """

    num_sequences: int = 5
    frames_per_sequence: tuple[int, int] = attrs.field(default=(8, 14), converter=_pair)
    """Smallest and largest number of frames, both possible; sequences differ where this allows it."""
    image_hw: tuple[int, int] = attrs.field(default=(256, 448), converter=_pair)
    """Height and width of the images of every camera, in pixels."""
    seed: int = 7
    jpeg_quality: int = 90
    """1 to 95, as Pillow takes it."""
    keyframe_rate_hz: float = 2.0
    """Frames per second."""
    traffic_density: float = 1.0
    """Factor on the number of cars, trucks, pedestrians and cyclists; 0 leaves the road empty."""

    def __attrs_post_init__(self) -> None:
        """Refuse settings that make no sense."""
        problems = list(_problems(self))
        if problems:
            raise SettingsError("The scene settings are not valid:\n" + "\n".join(f"  {p}" for p in problems))


def _is_int(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_real(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def _is_int_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(_is_int(item) for item in value)


def _problems(settings: SceneSettings) -> list[str]:
    found = []

    def check(is_fine: bool, name: str, rule: str, remedy: str) -> None:
        if not is_fine:
            found.append(f"{name}: must be {rule}, got {getattr(settings, name)!r}; {remedy}")

    check(
        _is_int(settings.num_sequences) and settings.num_sequences >= 1,
        *("num_sequences", "an integer of at least 1", "ask for one sequence or more"),
    )
    frames = settings.frames_per_sequence
    check(
        _is_int_pair(frames) and 1 <= frames[0] <= frames[1],
        *("frames_per_sequence", "two integers (smallest, largest) with 1 <= smallest <= largest"),
        "give for example (8, 14)",
    )
    image_hw = settings.image_hw
    check(
        _is_int_pair(image_hw) and all(_SMALLEST_SIDE_PX <= side <= _LARGEST_SIDE_PX for side in image_hw),
        *("image_hw", f"two integers (height, width) from {_SMALLEST_SIDE_PX} to {_LARGEST_SIDE_PX}"),
        "give for example (256, 448)",
    )
    check(
        _is_int(settings.seed) and settings.seed >= 0, *("seed", "an integer of at least 0", "give for example 7")
    )
    check(
        _is_int(settings.jpeg_quality) and 1 <= settings.jpeg_quality <= 95,
        *("jpeg_quality", "an integer from 1 to 95", "give for example 90"),
    )
    rate = settings.keyframe_rate_hz
    check(
        _is_real(rate) and 0.1 <= rate <= 100.0,
        *("keyframe_rate_hz", "a number of frames per second from 0.1 to 100", "give for example 2.0"),
    )
    check(
        _is_real(settings.traffic_density) and 0.0 <= settings.traffic_density <= 4.0,
        *("traffic_density", "a number from 0 to 4", "give 1.0 for ordinary traffic"),
    )
    return found
