"""Classification: features, a head with its margin, regularisers, over-parameterization; the task most experiments are."""

import pathlib
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ... import models, operators, plots
from ...data import InMemory, Loader
from ...objectives import MarginSoftmax
from ..config import Config, Data
from ..datasets import augmentation, load, normalization, prepared, training_part
from ..embedder import save_embedder
from ..measures import feature_measures
from ..parts import Regularizers, build_model, build_orthogonal
from ..pictures import draw
from .base import Task


class Classification(Task):
    """A network of the text on a dataset, measured by its accuracy on the test set, or on held-out samples."""

    by_class = False
    model: models.Network

    def __init__(self, config: Config):
        super().__init__(config)
        train, self.measured = self.load(config.data)
        train = training_part(config.data, train)
        self.normalize = normalization(config.data, train)
        self.build(train)
        batch = min(config.data.batch_size, len(train))
        self.loader = Loader(
            train,
            batch,
            config.seed,
            augment=augmentation(config.data, self.normalize, train.data.shape[-1]),
            drop_last=True,
        )

    def load(self, config: Data) -> tuple[InMemory, InMemory]:
        """What is trained on, and what is measured."""
        return load(config, self.by_class)

    def build(self, train: InMemory) -> None:
        """The network for these samples, and what is added to its loss."""
        config = self.config
        self.model = self.network(train)
        build_orthogonal(config.orthogonal, self.model, torch.Generator().manual_seed(config.seed))
        self.regularizers = Regularizers(config.energy, config.orthogonal, self.model, config.seed)
        if config.model.operator.weighted_gradients:
            operators.weighted_gradients(self.model)
        self._facts = {
            "training samples": len(train),
            "classes": len(train.classes),
            "measured samples": len(self.measured),
        }

    def network(self, train: InMemory) -> models.Network:
        """With as many channels, positions and classes as the samples have."""
        return build_model(
            self.config.model, self.config.head, len(train.classes), **input_options(self.config, train.data)
        )

    def forward(self, step: int, *batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The head's loss and the regularisers."""
        inputs, labels = batch
        parts = {"objective": self.objective(self.inputs(inputs), labels), **self.regularizers(labels)}
        return torch.stack(list(parts.values())).sum(), parts

    def objective(self, inputs: Tensor, labels: Int[Tensor, "b"]) -> Tensor:
        """The loss without regularisers."""
        assert isinstance(self.model.classifier, MarginSoftmax)
        return self.model.classifier(self.model.features(inputs), labels)

    def inputs(self, batch: Tensor) -> Tensor:
        """A batch as the network wants it: clouds have their coordinates before their points."""
        return batch.transpose(1, 2) if batch.ndim == 3 else batch

    def advance(self, step: int) -> None:
        """λ, projection bases, and weight projection move on."""
        assert isinstance(self.model.classifier, MarginSoftmax)
        self.model.classifier.step()
        self.regularizers.step()
        every = self.config.model.operator.project_every
        if every and step % every == 0:
            operators.project_weights(self.model)

    def embed(self, dataset: InMemory, batch: int = 512) -> Float[Tensor, "n d"]:
        """Features of a dataset, on the CPU."""
        parts = [
            self.inputs(prepared(dataset.data[i : i + batch].to(self.device), self.normalize))
            for i in range(0, len(dataset), batch)
        ]
        return torch.cat([self.model.features(part).float().cpu() for part in parts])

    def evaluate(self) -> dict[str, float]:
        """Accuracy and error in percent, and the geometry of the features; also the error of class 0 where it alone is rare (5.5.1)."""
        features, labels = self.embed(self.measured), self.measured.labels
        head = self.model.classifier
        assert isinstance(head, MarginSoftmax)
        predicted = torch.cat([head.predict(part.to(self.device)).cpu() for part in features.split(1024)])
        right = (predicted == labels).double()
        accuracy = 100 * right.mean().item()
        rare = (
            {"rare_error": 100 - 100 * right[labels == 0].mean().item()}
            if self.config.data.imbalance == "single"
            else {}
        )
        return {"accuracy": accuracy, "error": 100 - accuracy, **rare, **feature_measures(features, labels)}

    @torch.no_grad()
    def pictures(self, folder: pathlib.Path) -> None:
        """Angles of pairs, and the features themselves where they can be drawn."""
        count = min(len(self.measured), 2000)
        shown = InMemory(self.measured.data[:count], self.measured.labels[:count], self.measured.classes)
        features = self.embed(shown)
        draw(folder / "angles.png", plots.plot_angle_histogram, features, shown.labels)
        if features.shape[1] in (2, 3):
            head = self.model.classifier
            centers = head.weight.detach().cpu() if isinstance(head, MarginSoftmax) else None
            projection = "3d" if features.shape[1] == 3 else None
            draw(
                folder / "features.png",
                plots.plot_features,
                features,
                shown.labels,
                centers=centers,
                projection=projection,
            )

    def keep(self, folder: pathlib.Path, weights: Mapping[str, Tensor]) -> None:
        """The network up to its features, for ``hypersphere embed``, where a file can say how it is built."""
        save_embedder(
            self.config, weights, tuple(self.measured.data.shape[1:]), self.normalize, folder / "embedder.safetensors"
        )

    def summary(self) -> dict[str, Any]:
        """Sizes."""
        return dict(self._facts)


def input_options(config: Config, data: Tensor) -> dict[str, Any]:
    """What the data decides of a network: channels and size of images, length of a flattened input; nothing for clouds."""
    if config.model.name == "mlp":
        return {"in_features": data[0].numel()}
    if data.ndim != 4:
        return {}
    height, width = data.shape[-2:]
    return {"in_channels": data.shape[1], "input_size": (height, width)}
