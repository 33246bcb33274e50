"""Limits of face quality for enrollment, with reasons for each violation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FaceQualityGate:
    """Limits of face quality. Enrolling a face that violates one issues a warning.

    About 99 % of the photographs of LFW satisfy the defaults. Faces that violate them are often recognized, but less reliably;
    ``hypersphere evaluate --quality`` measures the difference on your own pictures.

    Args:
        min_size: Minimum distance between the eyes in pixels.
        min_sharpness: Minimum variance of the Laplacian of the central part of the aligned gray face.
        max_yaw: Maximum distance of the nose from the midpoint between the eyes, relative to the distance between the eyes.
        max_roll: Maximum tilt of the line between the eyes in degrees. Alignment rotates a tilted face upright.
        brightness: Minimum and maximum mean of the gray face in [0, 1].
        min_contrast: Minimum standard deviation of the gray face in [0, 1].
        min_score: Minimum score of the detector.

    >>> gate = FaceQualityGate()
    >>> gate.find_problems({"score": 0.9, "quality": {"size": 12.0, "sharpness": 500.0, "yaw": -0.7}})
    ['the eyes are 12 pixels apart (at least 20)', 'the head is turned: yaw -0.70 (at most 0.5)']
    """

    min_size: float = 20.0
    min_sharpness: float = 25.0
    max_yaw: float = 0.5
    max_roll: float = 45.0
    brightness: tuple[float, float] = (0.15, 0.85)
    min_contrast: float = 0.08
    min_score: float = 0.7

    def find_problems(self, info: Mapping[str, Any]) -> list[str]:
        """Return one message per violated limit; an empty list for a good face.

        Args:
            info: The ``info`` of a face from :meth:`FacePreprocessing.load_all`. Missing measurements are not checked, so
                samples without a face have no problems.
        """
        measurements = dict(info.get("quality", {}))
        if "score" in info:
            measurements["score"] = info["score"]
        low, high = self.brightness
        limits = (
            ("size", self.min_size, None, "the eyes are {:.0f} pixels apart (at least {:g})"),
            ("sharpness", self.min_sharpness, None, "the face is blurred: sharpness {:.0f} (at least {:g})"),
            ("yaw", -self.max_yaw, self.max_yaw, "the head is turned: yaw {:.2f} (at most {:g})"),
            ("roll", -self.max_roll, self.max_roll, "the head is tilted by {:.0f} degrees (at most {:g})"),
            ("brightness", low, None, "the face is too dark: brightness {:.2f} (at least {:g})"),
            ("brightness", None, high, "the face is too bright: brightness {:.2f} (at most {:g})"),
            ("contrast", self.min_contrast, None, "the face has little contrast: {:.2f} (at least {:g})"),
            ("score", self.min_score, None, "the detector is not sure: score {:.2f} (at least {:g})"),
        )
        problems = []
        for name, lower, upper, text in limits:
            value = measurements.get(name)
            if value is None:
                continue
            if (lower is not None and value < lower) or (upper is not None and value > upper):
                problems.append(text.format(value, lower if upper is None else upper))
        return problems
