import pytest
import torch

from hypersphere.data import PicturePreprocessing
from hypersphere.recognition import Embedder, calibrate_features, find_calibration, measure_calibration
from tests.recognition.test_grouping import people


def test_probabilities_of_other_people_are_calibrated():
    features, labels = people(60, 5, noise=0.9)
    fitted = calibrate_features(features, labels)
    others, whose = people(60, 5, noise=0.9, seed=1)
    unit = torch.nn.functional.normalize(others)
    pairs = torch.combinations(torch.arange(len(unit)))
    cosines, same = (unit[pairs[:, 0]] * unit[pairs[:, 1]]).sum(1), whose[pairs[:, 0]] == whose[pairs[:, 1]]
    assert fitted.evaluate(cosines, same).ece < 0.03


def test_too_little_is_refused():
    with pytest.raises(ValueError, match="at least 20 pairs of one identity"):
        calibrate_features(torch.eye(4), torch.tensor([0, 0, 1, 1]))


def test_features_that_say_nothing_are_refused():
    labels = torch.arange(30).repeat_interleave(3)
    features = torch.nn.functional.one_hot(torch.arange(90) % 3, 4).float() + 0.01 * torch.randn(90, 4)
    with pytest.raises(ValueError, match="do not tell the identities apart"):
        calibrate_features(features, labels)


def test_an_unknown_embedder_says_how_to_calibrate():
    embedder = Embedder(torch.nn.Flatten(), PicturePreprocessing(size=(4, 4), channels=1))
    with pytest.raises(ValueError, match="--calibration FOLDER"):
        find_calibration(embedder)


def test_measured_on_labeled_pictures():
    embedder = Embedder(torch.nn.Flatten(), PicturePreprocessing(size=(4, 4), channels=1))
    draw = torch.Generator().manual_seed(0)
    base = torch.randint(0, 256, (12, 4, 4), generator=draw).repeat_interleave(4, 0)
    noisy = (base + torch.randint(-10, 11, base.shape, generator=draw)).clamp(0, 255).to(torch.uint8)
    names = [f"person {i // 4}" for i in range(48)]
    assert measure_calibration(embedder, (noisy, names)).slope > 0
