"""Identify people with a gallery whose threshold is calibrated on strangers."""

import tempfile

import torch

from hypersphere.recognition import Gallery

torch.manual_seed(0)
people = {"ada": torch.randn(64), "bob": torch.randn(64), "eve": torch.randn(64)}  # in place of an embedder's features
strangers = torch.randn(500, 64)  # people who are neither enrolled nor in the training set


def draw_features(center: torch.Tensor, count: int) -> torch.Tensor:
    """Return ``count`` noisy features around the feature of a person."""
    return center + 0.5 * torch.randn(count, 64)


with tempfile.TemporaryDirectory() as folder, Gallery(f"{folder}/people.db") as gallery:
    for name, feature in people.items():
        gallery.enrol(name, draw_features(feature, 3))
    # Accept at most one in a hundred new strangers. Each of the 500 features belongs to another person.
    threshold = gallery.calibrate(fpir=0.01, strangers=strangers, people=range(500)).threshold
    print(f"threshold {threshold:.3f}, enrolled {gallery.list()}")
    for probe, expected in ((draw_features(people["bob"], 1), "bob"), (torch.randn(1, 64), None)):
        best = gallery.identify(probe)[0].best
        print(f"{best.identity if best.accepted else 'unknown'} (nearest {best.identity}, cosine {best.score:.2f})")
        assert (best.identity if best.accepted else None) == expected
