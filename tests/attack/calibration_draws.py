"""Gallery thresholds calibrated on random strangers: new strangers are accepted at most at the promised rate."""

import math
from collections.abc import Iterator

import torch

from . import tally as rows
from .tally import Tally

DRAWS, DIM, NEW = 40, 16, 4000
CASES = ((60, 10, 0.05, 0.3), (60, 2, 0.05, 1.0), (30, 20, 0.1, 0.3), (299, 3, 0.01, 0.3))


def attack(scale: float) -> Iterator[Tally]:
    """Yield one tally per case: number of people, pictures per person, rate, and spread of a person's pictures."""
    from hypersphere.recognition import Gallery

    for people, pictures, fpir, spread in CASES:
        part = f"{people} people of {pictures} pictures, rate {fpir:g}, spread {spread:g}"
        if not rows.due("calibration", part):
            continue
        tally, draws = Tally("calibration", part), max(10, round(scale * DRAWS))
        generator = torch.Generator().manual_seed(32)
        rates = []
        with Gallery(":memory:") as gallery:
            gallery.enrol([str(i) for i in range(20)], torch.randn(20, DIM, generator=generator))
            owner = torch.arange(people).repeat_interleave(pictures)
            for _ in range(draws):
                given = torch.randn(people, DIM, generator=generator)[owner]
                given = given + spread * torch.randn(given.shape, generator=generator)
                gallery.calibrate(fpir=fpir, strangers=given, people=owner)
                new = math.sqrt(1 + spread**2) * torch.randn(NEW, DIM, generator=generator)
                rates.append(sum(answer.accepted for answer in gallery.identify(new)) / NEW)
        kept = sum(rate <= fpir for rate in rates)
        tally.held("thresholds within the rate", kept)
        tally.held("thresholds above the rate (one in ten is allowed)", len(rates) - kept)
        tally.check(
            kept >= 0.9 * len(rates),
            f"only {kept} of {len(rates)} keep the rate",
            "at least nine of ten within the rate",
        )
        tally.conditions = {"mean rate of new strangers": round(sum(rates) / len(rates), 4)}
        yield tally
