"""Who is this, or nobody we know? A gallery with a threshold that is calibrated on strangers."""

import tempfile

import torch

from hypersphere.recognition import Gallery

torch.manual_seed(0)
people = {"ada": torch.randn(64), "bob": torch.randn(64), "eve": torch.randn(64)}  # in place of an embedder's features
strangers = torch.randn(500, 64)  # of nobody who is enrolled, and nobody the embedder was trained on


def photos(of: torch.Tensor, count: int) -> torch.Tensor:
    """So many features near that of a person."""
    return of + 0.5 * torch.randn(count, 64)


with tempfile.TemporaryDirectory() as folder, Gallery(f"{folder}/people.db") as gallery:
    for name, feature in people.items():
        gallery.enrol(name, photos(feature, 3))
    # At most one new stranger in a hundred is taken for somebody. Every feature here is of another person.
    threshold = gallery.calibrate(fpir=0.01, strangers=strangers, people=range(500)).threshold
    print(f"threshold {threshold:.3f}, enrolled {gallery.list()}")
    for probe, expected in ((photos(people["bob"], 1), "bob"), (torch.randn(1, 64), None)):
        best = gallery.identify(probe)[0].best
        print(f"{best.identity if best.accepted else 'unknown'} (nearest {best.identity}, cosine {best.score:.2f})")
        assert (best.identity if best.accepted else None) == expected
