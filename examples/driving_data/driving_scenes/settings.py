"""What scenes are generated from."""

import attrs

__all__ = ["SceneSettings"]


@attrs.frozen(kw_only=True)
class SceneSettings:
    """All settings of the generator; equal settings give equal scenes.

    Example:
        >>> SceneSettings(num_sequences=2).frames_per_sequence
        (8, 14)
    """

    num_sequences: int = 5
    frames_per_sequence: tuple[int, int] = (8, 14)
    """Smallest and largest number of frames, both possible; sequences differ where this allows it."""
    image_hw: tuple[int, int] = (256, 448)
    """Height and width of the images of every camera, in pixels."""
    seed: int = 7
    jpeg_quality: int = 90
    """1 to 95, as Pillow takes it."""
    keyframe_rate_hz: float = 2.0
    """Frames per second."""
    traffic_density: float = 1.0
    """Factor on the number of cars, trucks, pedestrians and cyclists; 0 leaves the road empty."""
