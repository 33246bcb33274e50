import re

import pytest

from hypersphere.data import FaceQualityGate

GOOD = {
    "score": 0.93,
    "quality": {"size": 48.0, "sharpness": 400.0, "yaw": 0.0, "roll": 1.0, "brightness": 0.4, "contrast": 0.25},
}


def test_a_good_face_and_a_picture_without_figures_pass():
    assert FaceQualityGate().find_problems(GOOD) == []
    assert FaceQualityGate().find_problems({}) == []


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("size", 11.0, r"eyes are 11 pixels apart \(at least 20\)"),
        ("sharpness", 3.0, "blurred"),
        ("yaw", 0.8, r"turned: yaw 0.80 \(at most 0.5\)"),
        ("yaw", -0.8, "turned"),
        ("roll", 80.0, "tilted"),
        ("brightness", 0.05, r"too dark: brightness 0.05 \(at least 0.15\)"),
        ("brightness", 0.95, r"too bright: brightness 0.95 \(at most 0.85\)"),
        ("contrast", 0.01, "little contrast"),
        ("score", 0.61, "not sure"),
    ],
)
def test_every_limit_has_a_reason(name, value, reason):
    info = {**GOOD, "quality": {**GOOD["quality"], name: value}}
    if name == "score":
        info = {**GOOD, "score": value}
    (problem,) = FaceQualityGate().find_problems(info)
    assert re.search(reason, problem)


def test_limits_can_be_chosen():
    assert FaceQualityGate(min_size=60).find_problems(GOOD) == ["the eyes are 48 pixels apart (at least 60)"]
