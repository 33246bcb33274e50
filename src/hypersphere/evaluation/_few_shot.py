"""Few-shot classification with fixed features: nearest centroid, ``baseline`` and ``baseline++`` (7.5, F.3)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from .. import plots
from ..data.samplers import EpisodeSampler
from ..data.streams import CLASSIFIER, Stream
from ..geometry import normalize
from .figures import Figure, Report
from .intervals import Measurement, mean_interval


class Episodes(NamedTuple):
    """Indices of support ``(episodes, ways, shots)`` and query ``(episodes, ways, queries)`` samples; a way is a class.

    >>> labels = torch.arange(4).repeat(5)
    >>> episodes = sample_episodes(labels, ways=2, shots=1, queries=3, count=10)
    >>> bool((labels[episodes.query] == labels[episodes.support]).all())  # each way is one class
    True
    """

    support: Int[Tensor, "episodes ways shots"]
    query: Int[Tensor, "episodes ways queries"]


def sample_episodes(
    labels: Shaped[Tensor, "..."], ways: int = 5, shots: int = 1, queries: int = 15, count: int = 600, *, seed: int = 0
) -> Episodes:
    """Draw ``count`` episodes of ``ways`` classes with ``shots`` + ``queries`` different samples each.

    The episodes equal those of :class:`hypersphere.data.EpisodeSampler` with the same ``seed``. Classes with too few samples
    are not used. Episode i depends only on ``seed`` and i.

    >>> episodes = sample_episodes(torch.arange(8).repeat(6), ways=4, shots=2, queries=3, count=10)
    >>> episodes.support.shape, episodes.query.shape
    (torch.Size([10, 4, 2]), torch.Size([10, 4, 3]))
    """
    if labels.ndim != 1 or labels.is_floating_point():
        raise ValueError(f"labels must be integers of shape (n,), got {labels.dtype} {tuple(labels.shape)}")
    if min(ways - 1, shots, queries, count) < 1:
        raise ValueError(f"ways must be ≥ 2 and shots, queries, count ≥ 1, got {ways}, {shots}, {queries}, {count}")
    sampler = EpisodeSampler(labels, ways, shots, queries, count, seed)
    drawn = [sampler[i] for i in range(count)]
    return Episodes(
        torch.stack([episode.support for episode in drawn]).to(labels.device),
        torch.stack([episode.query for episode in drawn]).to(labels.device),
    )


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
    """Measure the mean accuracy over episodes with its 95 % interval.

    Args:
        features: Features ``(n, d)`` of all samples.
        labels: Class of each sample.
        ways: Number of classes per episode.
        shots: Number of support samples per class.
        queries: Number of query samples per class.
        method: ``"centroid"`` predicts the class whose mean unit feature has the highest cosine. ``"baseline"`` trains a
            linear classifier and ``"baseline++"`` a classifier by scaled cosine c·cos θ, c = 2, on the support set of each
            episode as in F.3.
        episodes: Number of episodes, or the episodes. All methods use the same episodes at the same ``seed``.
        seed: Seed of the episodes and classifiers.
        epochs: Number of epochs of the trained classifiers.
        chunk: Number of episodes computed together; affects speed only.

    >>> features = torch.eye(5).repeat(20, 1)
    >>> few_shot(features, torch.arange(5).repeat(20), episodes=10).accuracy
    1.0000 [1.0000, 1.0000]
    """
    methods: dict[str, Callable[..., Tensor]] = {
        "centroid": _classify_by_centroid,
        "baseline": _fine_tune,
        "baseline++": _fine_tune_cosine,
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
        streams = [Stream(seed, CLASSIFIER, i) for i in range(start, start + len(support))]
        logits = methods[method](features[support], features[query].flatten(1, 2), streams, epochs)
        target = torch.arange(support.shape[1], device=logits.device).repeat_interleave(query.shape[2])
        accuracies.append((logits.argmax(2) == target).double().mean(1))
    return FewShotReport(torch.cat(accuracies), support.shape[1], support.shape[2], method)


@dataclass(frozen=True, repr=False)
class FewShotReport(Report):
    """The accuracy of each episode.

    >>> report = few_shot(torch.eye(5).repeat(20, 1), torch.arange(5).repeat(20), episodes=10)
    >>> report.ways, report.shots, report.accuracies.shape, float(report.accuracy)
    (5, 1, torch.Size([10]), 1.0)
    """

    accuracies: Float[Tensor, "episodes"]
    ways: int
    shots: int
    method: str
    title = "few-shot classification"

    @property
    def accuracy(self) -> Measurement:
        """Mean over the episodes with its 95 % interval."""
        return mean_interval(self.accuracies)

    def figures(self) -> list[Figure]:
        """Return the setting and the mean accuracy over episodes with its 95 % interval."""
        return [
            Figure("method", self.method),
            Figure("ways", self.ways, "classes"),
            Figure("shots", self.shots, "samples"),
            Figure.of("accuracy", self.accuracy, count=len(self.accuracies)),
        ]

    def plot(self, ax: Any = None) -> tuple[Any, Any]:
        """Draw the histogram of the accuracies of the episodes."""
        title = f"{self.ways}-way {self.shots}-shot, mean {100 * self.accuracy:.4g} %"
        return plots.plot_histogram(
            {"accuracy": self.accuracies},
            bins=20,
            limits=(0, 1),
            density=False,
            xlabel="accuracy of an episode",
            ylabel="episodes",
            title=title,
            ax=ax,
        )


def _classify_by_centroid(support: Tensor, query: Tensor, streams: list[Stream], epochs: int) -> Tensor:
    centroids = normalize(normalize(support).mean(2))
    return normalize(query) @ centroids.transpose(1, 2)


def _fine_tune(
    support: Tensor, query: Tensor, streams: list[Stream], epochs: int, scale: float | None = None
) -> Tensor:
    """Train one independent classifier per episode on its support set, all in parallel, and return the logits of the queries.

    F.3: SGD with momentum 0.9, dampening 0.9, learning rate 1e-2, weight decay 1e-3, batch size 4.
    """
    count, ways, shots, d = support.shape
    x = support.flatten(1, 2)
    y = torch.arange(ways, device=x.device).repeat_interleave(shots).expand(count, -1)
    drawn = torch.stack([stream.uniforms(ways * d).view(ways, d) for stream in streams])
    weight = ((2 * drawn - 1) * d**-0.5).to(x).requires_grad_(True)
    bias = torch.zeros(count, 1, ways, device=x.device, dtype=x.dtype, requires_grad=scale is None)

    def logits(features: Tensor) -> Tensor:
        if scale is None:
            return features @ weight.transpose(1, 2) + bias
        return scale * normalize(features) @ normalize(weight).transpose(1, 2)

    parameters = [p for p in (weight, bias) if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, dampening=0.9, weight_decay=1e-3)
    with torch.enable_grad():
        for _ in range(epochs):
            order = torch.stack([stream.permutation(ways * shots) for stream in streams]).to(x.device)
            for rows in order.split(4, dim=1):
                batch, target = x.gather(1, rows[:, :, None].expand(-1, -1, d)), y.gather(1, rows)
                optimizer.zero_grad()
                # Sum the mean losses of the episodes, so that each episode takes the same step as if trained alone.
                (
                    F.cross_entropy(logits(batch).flatten(0, 1), target.flatten(), reduction="sum") / rows.shape[1]
                ).backward()
                optimizer.step()
    return logits(query).detach()


def _fine_tune_cosine(support: Tensor, query: Tensor, streams: list[Stream], epochs: int) -> Tensor:
    return _fine_tune(support, query, streams, epochs, scale=2.0)  # c = 2 (F.3)
