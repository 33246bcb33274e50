"""From the config's values to the library's objects: network, head, regulariser, over-parameterization."""

import functools
from typing import Any

import torch
from torch import Tensor, nn

from .. import angular, geometry, models, objectives
from .. import energy as energies
from ..energy import CoMHE, Penalty, hyperspherical_energy
from ..neurons import neuron_layers
from ..objectives import Annealing, MarginSoftmax
from ..operators import convert, magnitudes
from ..orthogonal import orthogonality_penalty, overparameterize
from .config import Energy, Head, Model, Operator, Orthogonal

NORMS = {"batch": nn.BatchNorm2d, "none": None}
ACTIVATIONS = {"relu": nn.ReLU, "prelu": nn.PReLU, "none": None}
INITS = {"he": models.he_normal, "xavier": nn.init.xavier_uniform_, "normal": nn.init.normal_}


def build_head(config: Head, features: int, classes: int) -> MarginSoftmax:
    """The classifier: knobs that are None stay the head's own."""
    options: dict[str, Any] = {key: getattr(config, key) for key in ("m", "scale") if getattr(config, key) is not None}
    if config.angular != "default":
        options["angular"] = getattr(angular, config.angular)()
    if config.annealed:
        options["annealing"] = Annealing(config.start, config.floor, config.rate, config.power)
    try:
        return getattr(objectives, config.name)(features, classes, **options)
    except TypeError as error:
        raise ValueError(f"head {config.name} does not take {', '.join(options)}: {error}") from error


def build_model(config: Model, head: Head, classes: int | None, **options: Any) -> models.Network:
    """The network, its layers turned into operators, with its head; ``options`` are what the data decides (channels, size, …)."""
    if config.name not in models.__all__ or config.name[0].isupper():
        accepted = ", ".join(name for name in models.__all__ if not name[0].isupper())
        raise ValueError(f"model.name must be one of {accepted}, got {config.name!r}")
    options |= {key: getattr(config, key) for key in ("table", "feature_dim") if getattr(config, key) is not None}
    for key, known in (("norm", NORMS), ("activation", ACTIVATIONS), ("init", INITS)):
        if getattr(config, key) != "default":
            options[key] = known[getattr(config, key)]  # type: ignore[index]
    factory = functools.partial(build_head, head)
    try:
        model = getattr(models, config.name)(classes, width=config.width, classifier=factory, **options)
    except TypeError as error:
        raise ValueError(f"model {config.name} does not take {', '.join(options)}: {error}") from error
    build_operators(config.operator, model)
    return model


def build_operators(config: Operator, model: nn.Module) -> None:
    """Every hidden Conv and Linear layer as magnitude × angle, in place."""
    if config.magnitude == "none":
        return
    radius = {"learnable_radius": config.learn} if config.magnitude in ("Ball", "Tanh", "Seg") else {}
    magnitude = getattr(magnitudes, config.magnitude)(**radius)
    learned = config.learn and config.angular == "Sigmoid"
    convert(
        model,
        magnitude,
        getattr(angular, config.angular)(**({"learnable": "filter"} if learned else {})),
        skip=[MarginSoftmax, *config.skip],
    )


def build_orthogonal(config: Orthogonal, model: nn.Module, generator: torch.Generator) -> None:
    """Hidden layers over-parameterized as w = R v, in place; the head is trained as usual."""
    if config.shift:
        with torch.no_grad():
            for layer in neuron_layers(model).values():
                layer.weight += config.shift  # type: ignore[operator, assignment]
    if config.method == "none":
        return
    overparameterize(
        model,
        config.method,
        blocks=config.blocks,
        share_blocks=config.share_blocks,
        train_neurons=config.train_neurons,
        refine=None if config.refine == "none" else config.refine,
        normalize=config.normalize,
        redraw=config.redraw and not config.shift,
        start=config.start,
        skip=(),
        generator=generator,
    )


class Regularizers(nn.Module):
    """Everything that is added to the loss and looks at weights only or at weights and labels: parts III and IV."""

    def __init__(self, energy: Energy, orthogonal: Orthogonal, model: nn.Module, seed: int = 0):
        super().__init__()
        self.energy, self.orthogonal, self._model = energy, orthogonal, [model]  # in a list: looked at, not owned
        self.hidden = _regularizer(energy, model, seed)

    def forward(self, labels: Tensor | None = None) -> dict[str, Tensor]:
        """The weighted terms by name."""
        terms = {}
        model, head = self._model[0], getattr(self._model[0], "classifier", None)
        if self.hidden is not None:
            terms["hidden"] = self.hidden()
        if self.energy.output and isinstance(head, MarginSoftmax):
            terms["output"] = self.energy.output * hyperspherical_energy(
                head.weight, self.energy.s, distance=self.energy.distance
            )
        if self.energy.classes and isinstance(head, MarginSoftmax) and labels is not None:
            terms["classes"] = self.energy.classes * energies.class_energy(head.weight, labels, self.energy.s)
        if self.orthogonal.method == "regularized":
            terms["orthogonality"] = self.orthogonal.penalty * orthogonality_penalty(model)
        return terms

    def step(self) -> None:
        """One training step has passed."""
        if isinstance(self.hidden, CoMHE):
            self.hidden.step()


def _regularizer(config: Energy, model: nn.Module, seed: int) -> nn.Module | None:
    weight: dict[str, Any] = {} if config.hidden is None else {"hidden": config.hidden}
    if config.name in ("orthonormality", "orthogonality", "srip"):
        measure = energies.srip if config.name == "srip" else getattr(geometry, config.name)
        return Penalty(model, measure, classifier=False, **weight)
    shape: dict[str, Any] = {
        "s": config.s,
        "half_space": config.half_space,
        "distance": config.distance,
        "classifier": False,
        **weight,
    }
    if config.name == "MHE":
        return energies.MHE(model, **shape)
    if config.name == "CoMHE":
        return CoMHE(model, getattr(energies.projections, config.projection)(seed=seed), **shape)
    return None
