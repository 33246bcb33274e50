"""Few-shot classification on fixed features: nearest centroid, ``baseline`` and ``baseline++`` (7.5, F.3)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional as F

from ..geometry import normalize
from .episodes import Episodes, mix_seed, sample_episodes
from .intervals import Estimate, mean_interval
from .report import Number, Report


def few_shot(
    features: Float[Tensor, "n d"],
    labels: Shaped[Tensor, "..."],
    ways: int = 5,
    shots: int = 1,
    queries: int = 15,
    *,
    method: str = "centroid",
    episodes: int | Episodes = 600,
    seed: int = 0,
    epochs: int = 100,
    chunk: int = 100,
) -> "FewShotReport":
    """Mean accuracy over episodes with its 95 % interval; ``episodes`` is how many to draw, or the episodes themselves.

    ``method`` is ``"centroid"`` (the query goes to the class whose mean unit feature is nearest by cosine),
    ``"baseline"`` (a linear classifier) or ``"baseline++"`` (the scaled cosine c·cos θ, c = 2), the latter two trained
    on each episode's support as in F.3. All methods meet the same episodes at the same ``seed``. ``chunk`` episodes
    are computed together; their number changes nothing but the speed.

    >>> features = torch.eye(5).repeat(20, 1)
    >>> few_shot(features, torch.arange(5).repeat(20), episodes=10).accuracy
    1.0000 [1.0000, 1.0000]
    """
    methods: dict[str, Callable[..., Tensor]] = {
        "centroid": _centroid,
        "baseline": _finetuned,
        "baseline++": _finetuned_cosine,
    }
    if method not in methods:
        raise ValueError(f"method must be one of {', '.join(methods)}, got {method!r}")
    if labels.shape != features.shape[:1]:
        raise ValueError(f"labels must have shape ({len(features)},), got {tuple(labels.shape)}")
    if not features.isfinite().all():
        raise ValueError("features must be finite, got NaN or infinity")
    if not isinstance(episodes, Episodes):
        episodes = sample_episodes(labels, ways, shots, queries, episodes, seed=seed)
    features = features.detach().to(torch.promote_types(features.dtype, torch.float32))
    accuracies = []
    for start in range(0, len(episodes.support), chunk):
        support, query = (index[start : start + chunk] for index in episodes)
        seeds = [mix_seed(seed, i) for i in range(start, start + len(support))]
        logits = methods[method](features[support], features[query].flatten(1, 2), seeds, epochs)
        target = torch.arange(support.shape[1], device=logits.device).repeat_interleave(query.shape[2])
        accuracies.append((logits.argmax(2) == target).double().mean(1))
    return FewShotReport(torch.cat(accuracies), support.shape[1], support.shape[2], method)


@dataclass(frozen=True, repr=False)
class FewShotReport(Report):
    """The accuracy of each episode."""

    accuracies: Float[Tensor, "episodes"]
    ways: int
    shots: int
    method: str
    title = "few-shot classification"

    @property
    def accuracy(self) -> Estimate:
        """Mean over the episodes with its 95 % interval."""
        return mean_interval(self.accuracies)

    def numbers(self) -> dict[str, Number]:
        """The setting, the mean accuracy and half the width of its 95 % interval."""
        setting: dict[str, Number] = {
            "method": self.method,
            "ways": self.ways,
            "shots": self.shots,
            "episodes": len(self.accuracies),
        }
        return {**setting, "accuracy": float(self.accuracy), "±": self.accuracy.high - float(self.accuracy)}

    def draw(self, axes: Any) -> None:
        """How the accuracy of episodes is distributed."""
        axes.hist(self.accuracies.tolist(), bins=20, range=(0, 1))
        axes.set(
            xlabel="accuracy of an episode",
            ylabel="episodes",
            title=f"{self.ways}-way {self.shots}-shot, {self.accuracy}",
        )


def _centroid(support: Tensor, query: Tensor, seeds: list[int], epochs: int) -> Tensor:
    centroids = normalize(normalize(support).mean(2))
    return normalize(query) @ centroids.transpose(1, 2)


def _finetuned(support: Tensor, query: Tensor, seeds: list[int], epochs: int, scale: float | None = None) -> Tensor:
    """Classifiers ``(episodes, ways, d)`` trained side by side on the support; no episode feels another.

    F.3: SGD with momentum 0.9, dampening 0.9, learning rate 1e-2, weight decay 1e-3, batch size 4.
    """
    count, ways, shots, d = support.shape
    x = support.flatten(1, 2)
    y = torch.arange(ways, device=x.device).repeat_interleave(shots).expand(count, -1)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    weight = (
        torch.stack([(torch.rand(ways, d, generator=g) * 2 - 1) * d**-0.5 for g in generators])
        .to(x)
        .requires_grad_(True)
    )
    bias = torch.zeros(count, 1, ways, device=x.device, dtype=x.dtype, requires_grad=scale is None)

    def logits(features: Tensor) -> Tensor:
        if scale is None:
            return features @ weight.transpose(1, 2) + bias
        return scale * normalize(features) @ normalize(weight).transpose(1, 2)

    parameters = [p for p in (weight, bias) if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, dampening=0.9, weight_decay=1e-3)
    with torch.enable_grad():
        for _ in range(epochs):
            order = torch.stack([torch.randperm(ways * shots, generator=g) for g in generators]).to(x.device)
            for rows in order.split(4, dim=1):
                batch, target = x.gather(1, rows[:, :, None].expand(-1, -1, d)), y.gather(1, rows)
                optimizer.zero_grad()
                # The sum over episodes of each one's mean: every episode takes the step it would take alone.
                (
                    F.cross_entropy(logits(batch).flatten(0, 1), target.flatten(), reduction="sum") / rows.shape[1]
                ).backward()
                optimizer.step()
    return logits(query).detach()


def _finetuned_cosine(support: Tensor, query: Tensor, seeds: list[int], epochs: int) -> Tensor:
    return _finetuned(support, query, seeds, epochs, scale=2.0)  # c = 2 (F.3)
