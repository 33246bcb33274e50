"""Choice of thresholds that limit an error rate. This module chooses all thresholds of the library.

A score is accepted when it is ≥ the threshold. The threshold for a rate is the smallest one at which the share of accepted
impostor scores is at most that rate. Verification calls the rate FAR, and every impostor pair is one trial. Open-set
identification calls it FPIR, and the best score of each stranger probe is one trial.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from .intervals import PEOPLE, Measurement, wilson

DEFAULT_FARS = (1e-2, 1e-3, 1e-4)
DEFAULT_FPIRS = (1e-1, 1e-2)
ADDED_PERSON = 0.25  # weight of an accepted person added to the variance; without it, coverage falls below 90 %
ROUNDING = 1e-9  # tolerance for rates times counts that should be integers


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold and the rate of impostors that it accepts.

    Attributes:
        threshold: Scores ≥ this number are accepted.
        rate: Share of the impostor scores that are accepted, with its interval. Without ``people`` this is Wilson's 95 %
            interval over independent scores. With ``people`` both ends are one-sided bounds over people.
        people: Number of people in the impostor scores; None if ``people`` was not given.

    >>> point = choose_threshold(torch.tensor([0.1, 0.5, 0.2, 0.3]), far=0.25)
    >>> 0.3 < point.threshold < 0.300001, float(point.rate), point.people
    (True, 0.25, None)
    """

    threshold: float
    rate: Measurement
    people: int | None = None


def choose_threshold(
    impostors: Shaped[Tensor, "..."],
    *,
    far: float | None = None,
    fpir: float | None = None,
    people: Shaped[Tensor, "..."] | None = None,
    confidence: float = 0.95,
    total: int | None = None,
) -> OperatingPoint:
    r"""Choose the smallest threshold at which the rate of accepted impostors is at most ``far`` or ``fpir``.

    Without ``people``, the rate is measured on the given scores. Of n scores, ⌊rate·n⌋ may be accepted, and the threshold is
    the next number above the highest score that must be rejected.

    With ``people``, the rate also holds for *new* strangers: the threshold is the smallest one whose upper confidence bound
    of the rate is at most ``fpir``. Pictures of one person tend to be accepted or rejected together, so people are counted,
    not pictures: the rate r is the mean over G people of the share s of their pictures that are accepted. Let V be the
    variance of this mean when people are drawn with replacement. A mean of n independent trials has the variance
    r(1 − r)/n, so the pictures are equivalent to n = r(1 − r)/V independent trials. n equals the number of people if all
    pictures of each person agree, and is up to the number of pictures if they do not depend on the person. A few accepted
    people underestimate V; the formula therefore includes one more person with the weight 1/4, all of whose pictures are
    accepted. The bound is that of Clopper and Pearson for r·n accepted out of n trials.

    Args:
        impostors: Scores ``(n,)`` of pairs of different identities for ``far``; the best score of each stranger probe for
            ``fpir``.
        far: Maximum false accept rate, in (0, 1].
        fpir: Maximum false positive identification rate, in (0, 1]. Give exactly one of ``far`` and ``fpir``.
        people: Person of each score ``(n,)``, integers; only with ``fpir``.
        confidence: Confidence of the bound for new strangers; used with ``people`` only.
        total: Number of all impostor scores, if ``impostors`` holds only the highest.

    Returns:
        The threshold, the rate of the given impostors with its interval, and the number of people.

    Raises:
        ValueError: If there are fewer than 1/rate scores, or so few people that even a threshold above all scores does not
            guarantee the rate.

    >>> strangers = torch.linspace(0, 0.5, 600)
    >>> round(choose_threshold(strangers, fpir=0.05).threshold, 3)
    0.475
    >>> point = choose_threshold(strangers, fpir=0.05, people=torch.arange(600) % 60)
    >>> round(point.threshold, 3), point.rate, point.people
    (0.486, 0.0283 [0.0149, 0.0489], 60)
    """
    if (far is None) == (fpir is None):
        raise ValueError(f"exactly one of far and fpir must be given, got far={far!r} and fpir={fpir!r}")
    name, rate, trials = ("far", far, "different pairs") if far is not None else ("fpir", fpir, "strangers")
    assert rate is not None
    scores = _check_scores(impostors)
    if people is None:
        count = len(scores) if total is None else total
        allowed = allowed_accepts(rate, count, name, trials)
        if allowed == count:
            return OperatingPoint(-math.inf, wilson(count, count))
        if allowed >= len(scores):
            raise ValueError(
                f"{name}={rate:g} of {count} {trials} needs the {allowed + 1} highest scores, got {len(scores)}"
            )
        threshold = _next_above(scores.topk(allowed + 1).values[-1], scores)  # the highest score that is rejected
        return OperatingPoint(threshold, wilson(int((scores >= threshold).sum()), count))
    if far is not None or total is not None:
        raise ValueError("people must be given with fpir, and without total")
    if people.shape != scores.shape or people.is_floating_point() or people.is_complex():
        raise ValueError(
            f"people must be an integer for each of {len(scores)} scores, got {people.dtype} {tuple(people.shape)}"
        )
    return _choose_over_people(scores, people.to(scores.device), rate, confidence)


def allowed_accepts(rate: float, count: int, name: str = "far", trials: str = "different pairs") -> int:
    """Return how many of ``count`` impostors may be accepted at a rate.

    Args:
        rate: The rate, in (0, 1].
        count: Number of impostors.
        name: Name of the rate in error messages.
        trials: Name of the impostors in error messages.

    Raises:
        ValueError: If there are fewer than 1/rate impostors: a single accepted impostor would exceed the rate, and a
            threshold above all scores would be extrapolated.

    >>> allowed_accepts(0.01, 250)
    2
    """
    if not 0 < rate <= 1:
        raise ValueError(f"{name} must be in (0, 1], got {rate!r}")
    allowed = math.floor(rate * count * (1 + ROUNDING) + ROUNDING)
    if not allowed:
        needed = math.ceil(1 / rate - ROUNDING)
        raise ValueError(f"{name}={rate:g} needs at least {needed} {trials} to be resolved, got {count}")
    return allowed


def choose_accurate_threshold(
    ordered: Float[Tensor, "n"], same: Bool[Tensor, "n"], used: Bool[Tensor, "n"] | None = None
) -> float:
    """Return the threshold with the highest accuracy on sorted pairs, the highest of several best thresholds.

    It lies midway between two neighboring scores, or is ±∞ if rejecting or accepting all pairs is best.

    Args:
        ordered: Scores in descending order.
        same: Whether each pair is of one identity.
        used: Mask of the pairs to use, all by default. A mask is much faster than selecting the pairs of every fold.

    >>> scores, same = torch.tensor([0.75, 0.5, 0.25, 0.0]), torch.tensor([True, True, False, False])
    >>> choose_accurate_threshold(scores, same)
    0.375
    >>> choose_accurate_threshold(scores, same, torch.tensor([True, True, False, True]))
    0.25
    """
    used = torch.ones_like(same) if used is None else used
    # Number of accepted same pairs minus accepted different pairs if all pairs up to each one are accepted. A threshold
    # cannot separate equal scores, so all but the last pair of equal scores get a value below every possible one.
    gain = (same.to(torch.int8) * 2 - 1).masked_fill_(~used, 0).cumsum(0, dtype=torch.int32)
    gain[:-1].masked_fill_(ordered[1:] == ordered[:-1], -len(same) - 1)
    best = int(gain.argmax())  # the first maximum has the highest threshold
    if gain[best] <= 0:
        return math.inf
    after, step = best + 1, 1024
    while after < len(used) and not used[after : after + step].any():
        after += step
    if after >= len(used):
        return -math.inf
    after += int(used[after : after + step].long().argmax())
    above, below = ordered[best].item(), ordered[after].item()
    middle = above / 2 + below / 2
    return middle if below < middle <= above else above  # no number lies between neighboring float64 scores


def _choose_over_people(
    scores: Float[Tensor, "n"], people: Int[Tensor, "n"], rate: float, confidence: float
) -> OperatingPoint:
    if not 0 < rate < 1:
        raise ValueError(f"fpir must be between 0 and 1, got {rate!r}")
    if not 0.5 <= confidence < 1:
        raise ValueError(f"confidence must be in [0.5, 1), got {confidence!r}")
    _, person, sizes = people.unique(return_inverse=True, return_counts=True)
    count = len(sizes)
    needed = math.ceil(math.log1p(-confidence) / math.log1p(-rate) - ROUNDING)
    if count < needed:
        raise ValueError(
            f"fpir={rate:g} needs strangers of at least {needed} people to be guaranteed with a confidence of "
            f"{confidence:.0%}, got {count} people"
        )
    ordered, order = scores.sort(descending=True)
    person, size = person[order], sizes[person[order]].double()
    # When the j-th of m pictures of a person (from 0) is accepted, the share s grows from j/m to (j + 1)/m. The cumulative
    # sums of the increments of s and s², in the order of the scores, are Σ s and Σ s² over people at every threshold.
    by_person = person.argsort(stable=True)
    starts = sizes.cumsum(0) - sizes
    j = torch.empty_like(person)
    j[by_person] = torch.arange(len(person), device=person.device) - starts[person[by_person]]
    mean = (1 / size).cumsum(0) / count
    # The bound is above the mean, so thresholds with a higher mean can be skipped.
    length = int((mean <= rate).sum()) + 1
    mean, squares = mean[:length], ((2 * j + 1) / size.square()).cumsum(0)[:length]
    added = (mean * count + ADDED_PERSON) / (count + ADDED_PERSON)
    squares = (squares + ADDED_PERSON) / (count + ADDED_PERSON)
    variance = ((squares - added.square()) / count).clamp_min(1e-300)
    trials = (added * (1 - added) / variance).clamp(count, len(scores))
    kept = _beta_cdf(mean.new_tensor(rate), mean * trials + 1, ((1 - mean) * trials).clamp_min(1e-9)) >= confidence
    # The score of the first threshold, in descending order, whose bound exceeds the rate must be rejected.
    threshold = _next_above(ordered[int((~kept).long().argmax())], scores)
    accepted = int((ordered >= threshold).sum())
    if not accepted:
        return OperatingPoint(
            threshold, Measurement(0.0, 0.0, -math.expm1(math.log1p(-confidence) / count), PEOPLE), count
        )
    value, n = mean[accepted - 1], trials[accepted - 1]
    low = _beta_quantile(1 - confidence, value * n, (1 - value) * n + 1)
    high = _beta_quantile(confidence, value * n + 1, (1 - value) * n)
    return OperatingPoint(threshold, Measurement(float(value), low, high, PEOPLE), count)


def _check_scores(scores: Shaped[Tensor, "..."]) -> Float[Tensor, "n"]:
    if scores.ndim != 1 or not len(scores) or scores.is_complex() or scores.dtype == torch.bool:
        raise ValueError(f"impostors must be real scores of shape (n,), got {scores.dtype} {tuple(scores.shape)}")
    if not scores.isfinite().all():
        raise ValueError(f"impostors must be finite, got {int((~scores.isfinite()).sum())} that are not")
    return scores.detach().to(torch.promote_types(scores.dtype, torch.float32)) + 0.0  # + 0.0: minus zero is zero


def _next_above(score: Float[Tensor, ""], scores: Float[Tensor, "n"]) -> float:
    """Return the next number above a score, in the precision in which the scores were computed.

    torch and numpy round a Python number to the dtype of the tensor that it is compared with. This would undo a step of
    float64 above a float32 score. Scores that were converted from float32 to float64 are therefore treated as float32.
    """
    single = score.dtype == torch.float64 and bool((scores.float().double() == scores).all())
    score = score.float() if single else score
    return torch.nextafter(score, torch.full_like(score, torch.inf)).item()


def _beta_cdf(x: Float[Tensor, "*n"], a: Float[Tensor, "n"], b: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """Return the distribution function of Beta(a, b) at x, the regularized incomplete beta function.

    It is x^a (1 − x)^b / (a·B(a, b)) times a continued fraction, which is evaluated by Lentz's method. The fraction
    converges quickly for x < (a + 1)/(a + b + 2); for larger x, I_x(a, b) = 1 − I_{1−x}(b, a) is used.
    """
    swap = x > (a + 1) / (a + b + 2)
    x, a, b = torch.where(swap, 1 - x, x), torch.where(swap, b, a), torch.where(swap, a, b)
    tiny = 1e-300
    c = torch.ones_like(a)
    d = 1 / _avoid_zero(1 - (a + b) * x / (a + 1), tiny)
    fraction = d.clone()
    for m in range(1, 200):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _avoid_zero(1 + term * d, tiny)
            c = _avoid_zero(1 + term / c, tiny)
            fraction = fraction * c * d
        if ((c * d - 1).abs() < 1e-13).all():
            break
    log_factor = a * x.log() + b * torch.log1p(-x) + torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b)
    value = log_factor.exp() * fraction / a
    return torch.where(swap, 1 - value, value)


def _avoid_zero(value: Float[Tensor, "n"], tiny: float) -> Float[Tensor, "n"]:
    return torch.where(value.abs() < tiny, tiny, value)


def _beta_quantile(level: float, a: Float[Tensor, ""], b: Float[Tensor, ""]) -> float:
    """Return the ``level`` quantile of Beta(a, b), by four refinements of a grid."""
    low, high = 0.0, 1.0
    for _ in range(4):
        grid = torch.linspace(low, high, 1002, dtype=a.dtype, device=a.device)[1:-1]
        below = int((_beta_cdf(grid, a.expand(1000), b.clamp_min(1e-9).expand(1000)) < level).sum())
        step = (high - low) / 1001
        low, high = low + below * step, low + (below + 1) * step
    return (low + high) / 2
