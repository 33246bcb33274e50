"""Limits of face quality: which faces are good enough to enroll, with reasons for the others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FaceQualityGate:
    """Limits that a face must keep to be enrolled without a warning.

    The defaults pass about 99 % of the photographs of LFW. A face beyond them is often recognized, but less reliably:
    ``hypersphere evaluate --quality`` measures how much less on your own pictures.

    Args:
        min_size: The least distance between the eyes in pixels.
        min_sharpness: The least variance of the Laplacian of the middle of the aligned gray face.
        max_yaw: The largest distance of the nose from the middle between the eyes, in distances between the eyes.
        max_roll: The largest tilt of the line between the eyes in degrees. Alignment turns a tilted face upright.
        brightness: The least and the largest mean of the gray face in [0, 1].
        min_contrast: The least standard deviation of the gray face in [0, 1].
        min_score: The least score of the detector.

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
        """Return a reason for every limit that a face breaks, none for a good face.

        Args:
            info: What :meth:`FacePreprocessing.load_all` knows about the face. Figures that it lacks are not judged, so
                samples that are not faces have no problems.
        """
        figures = dict(info.get("quality", {}))
        if "score" in info:
            figures["score"] = info["score"]
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
        for name, least, most, text in limits:
            value = figures.get(name)
            if value is None:
                continue
            if (least is not None and value < least) or (most is not None and value > most):
                problems.append(text.format(value, least if most is None else most))
        return problems
