"""Same-person probabilities of a gallery: fitted to scores of known people and of strangers."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..evaluation import LogisticCalibration, calibrate_scores
from ..geometry import cosine

MIN_SAME_PERSON_SCORES = 10  # fewer do not determine the distribution of the scores
MAX_IDENTITIES = 500  # identities of a gallery whose templates are compared with each other


def fit_probability(same: Float[Tensor, "n"], different: Float[Tensor, "m"]) -> tuple[float, float] | None:
    """Return slope and offset of log-odds = slope·score + offset, or None if the scores do not determine them.

    Both kinds of scores have the same weight, so the probability holds if half of all probes are of known people.

    Args:
        same: Scores of probes with their own identity.
        different: Scores of strangers with the most similar identity, or of pairs of different people.

    >>> slope, offset = fit_probability(torch.linspace(0.5, 0.9, 20), torch.linspace(0.0, 0.4, 20))
    >>> slope > 0, round(-offset / slope, 1)
    (True, 0.5)
    >>> fit_probability(torch.tensor([0.9]), torch.linspace(0.0, 0.4, 20)) is None
    True
    """
    if len(same) < MIN_SAME_PERSON_SCORES or len(different) < MIN_SAME_PERSON_SCORES:
        return None
    scores = torch.cat([same.double(), different.double()])
    fitted = calibrate_scores(scores, torch.arange(len(scores)) < len(same))
    assert isinstance(fitted, LogisticCalibration)
    return (fitted.slope, fitted.offset) if fitted.slope > 0 else None


def collect_same_scores(
    features: Float[Tensor, "n d"],
    people: Int[Tensor, "n"],
    identities: Sequence[str],
    find_templates: Callable[[str], Tensor | None],
) -> Float[Tensor, "k"]:
    """Return scores of features with other features of the same person.

    People whose pictures are given are compared with each other. Then each template of up to ``MAX_IDENTITIES`` enrolled
    identities is compared with the other templates of its identity; the best one counts, as in identification.

    Args:
        features: Features of strangers.
        people: The number of the person of each feature.
        identities: Enrolled identities with several templates.
        find_templates: Returns the templates of an identity.

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> collect_same_scores(x, torch.tensor([0, 0, 1]), ["ada"], lambda name: torch.eye(2)).tolist()
    [1.0, 0.0, 0.0]
    """
    found: list[Tensor] = []
    for person in people.unique().tolist():
        own = features[people == person]
        if len(own) > 1:
            first, second = torch.triu_indices(len(own), len(own), 1)
            found.append(cosine(own[first], own[second]).double())
    for name in identities[:MAX_IDENTITIES]:
        templates = find_templates(name)
        if templates is not None and len(templates) > 1:
            scores = cosine(templates, templates, pairwise=True).double().fill_diagonal_(-2)
            found.append(scores.amax(1))
    return torch.cat(found) if found else torch.empty(0, dtype=torch.double)
