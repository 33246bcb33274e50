"""What an experiment is, as plain values: the knobs of every run, written to its folder and changed by ``key.path=value``."""

import dataclasses
import json
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from .protocols import Attack, FewShot, Players

T = TypeVar("T")


@dataclass(frozen=True)
class Data:
    """Which samples are trained on, and how they come."""

    name: str = "Digits"
    """a dataset of ``hypersphere.data``, or a graph: cora, citeseer, pubmed, dblp, PlantedGraph"""
    size: int | None = None
    """height and width of the images, resized once; None keeps them"""
    channels: int | None = None
    """1 or 3 colours; None keeps them"""
    batch_size: int = 128
    """of all processes together"""
    augment: Literal["none", "crop_flip", "crop", "mirror", "affine", "rotate_jitter"] = "none"
    fill: float = 0.0
    """the pixels that affine augmentation brings in from outside: 255 for black on white"""
    normalize: Literal["none", "unit", "deviation", "pixel_mean", "faces"] = "deviation"
    """unit: to [0, 1]; deviation: mean and deviation per channel; pixel_mean: mean image; faces: (x − 127.5)/128"""
    classes: int | None = None
    """only the first so many classes"""
    per_class: int | None = None
    """at most so many training samples of a class"""
    rotations: bool = False
    """every class turned by 90, 180 and 270 degrees is three more classes"""
    imbalance: Literal["none", "single", "multiple"] = "none"
    """5.5.1: one class keeps a tenth, or class c keeps (c + 1)/classes of its samples"""
    validation: float = 0.0
    """this part of the training set (of its classes, where classes are unseen) is held out and measured instead of the test set"""
    points: int = 1024
    """of a cloud"""
    fold: int = 0
    """of LFW, measured on; the people of the others are trained on"""
    measured: int | None = None
    """at most so many samples are measured, drawn at random, the same for every run"""


@dataclass(frozen=True)
class Operator:
    """Part II: every hidden layer as magnitude × angle; ``none`` is the plain layer."""

    magnitude: Literal["none", "InnerProduct", "Sphere", "Ball", "Tanh", "Linear", "Seg", "Log", "Mix"] = "none"
    angular: Literal["Cosine", "Linear", "Sigmoid", "SquareCosine"] = "Cosine"
    learn: bool = False
    """learn the radius ρ of the magnitude (C.1–C.3) and the k of the sigmoid"""
    skip: tuple[str, ...] = ()
    """names of layers that stay plain"""
    project_every: int = 0
    """steps between weight projections (4.4.1); 0: none"""
    weighted_gradients: bool = False


@dataclass(frozen=True)
class Model:
    """The network up to its features: a constructor of ``hypersphere.models`` and its options."""

    name: str = "cnn9"
    table: str | None = None
    """which table's widths, where a network has several"""
    width: float = 1.0
    feature_dim: int | None = None
    norm: Literal["default", "batch", "none"] = "default"
    activation: Literal["default", "relu", "prelu", "none"] = "default"
    init: Literal["default", "he", "xavier", "normal"] = "default"
    operator: Operator = field(default_factory=Operator)


@dataclass(frozen=True)
class Head:
    """Part I: the classifier and its loss, by its name in ``hypersphere``."""

    name: Literal["Softmax", "LSoftmax", "WSoftmax", "SSoftmax", "ASoftmax", "GASoftmax", "AMSoftmax", "ArcFace"] = (
        "Softmax"
    )
    m: float | None = None
    """margin; None is the head's own"""
    scale: float | None = None
    angular: Literal["default", "Cosine", "Linear", "Sigmoid"] = "default"
    annealed: bool = False
    """λ from ``start`` down to ``floor`` (2.2.7)"""
    start: float = 1000.0
    floor: float = 5.0
    rate: float = 0.12
    power: float = 1.0


@dataclass(frozen=True)
class Energy:
    """Part III: the regulariser of the hidden neurons, and the energy of the classes (λ_M of SphereFace+)."""

    name: Literal["none", "MHE", "CoMHE", "orthonormality", "orthogonality", "srip"] = "none"
    hidden: float | None = None
    """weight; None is the text's"""
    output: float = 0.0
    """weight of the mean energy of the classifier"""
    classes: float = 0.0
    """weight of the data-dependent energy of the classifier (5.3.6)"""
    s: float = 2.0
    half_space: bool = True
    distance: Literal["euclidean", "angular"] = "euclidean"
    projection: Literal[
        "RandomProjection",
        "AnglePreservingProjection",
        "AdversarialProjection",
        "ChannelGroups",
        "BilateralProjection",
        "HadamardProjection",
    ] = "RandomProjection"


@dataclass(frozen=True)
class Orthogonal:
    """Part IV: hidden neurons as w = R v."""

    method: Literal[
        "none", "cayley", "gram_schmidt", "householder", "lowdin", "exponential", "ogd", "regularized", "unconstrained"
    ] = "none"
    penalty: float = 1.0
    """β of ``regularized``"""
    blocks: int = 1
    share_blocks: bool = False
    train_neurons: bool = False
    refine: Literal["none", "energy", "half_space_energy"] = "none"
    normalize: bool = False
    start: Literal["usual", "normal", "identity"] = "usual"
    """of R: N(0, 1) for Gram–Schmidt, Householder and Löwdin and the identity elsewhere; N(0, 1) or the identity for all"""
    shift: float = 0.0
    """added to every weight first: neurons that do not point everywhere (table 7.2)"""


@dataclass(frozen=True)
class Optimizer:
    """How parameters move, and how fast over time."""

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    nesterov: bool = False
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float | None = None
    """largest norm of the gradient"""
    rotation_lr: float = 0.01
    """of OGD, for orthogonal.method=ogd"""
    rotation_momentum: float = 0.0
    schedule: Literal["constant", "step", "cosine"] = "step"
    milestones: tuple[int, ...] = ()
    """steps after which the rate is multiplied by gamma"""
    gamma: float = 0.1
    warmup: int = 0
    """steps over which the rate rises from 0"""


@dataclass(frozen=True)
class Config:
    """One experiment."""

    name: str = "experiment"
    task: Literal["classification", "adversarial", "unseen", "faces", "few_shot", "graph", "gan"] = "classification"
    steps: int = 1000
    seed: int = 0
    evaluate_every: int = 500
    log_every: int = 50
    checkpoint_every: int = 500
    monitor: str = "accuracy"
    """the measure whose largest value is the best checkpoint; ``-name`` for the smallest"""
    precision: Literal["no", "bf16", "fp16"] = "no"
    channels_last: bool = False
    """images and filters in memory by pixel: faster for most convolutions"""
    threads: int = 0
    """of the CPU; 0 leaves torch's choice. Runs agree bit for bit with the same number"""
    pictures: bool = True
    """draw at the end; off where a run is one of hundreds"""
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    head: Head = field(default_factory=Head)
    energy: Energy = field(default_factory=Energy)
    orthogonal: Orthogonal = field(default_factory=Orthogonal)
    optimizer: Optimizer = field(default_factory=Optimizer)
    attack: Attack = field(default_factory=Attack)
    few_shot: FewShot = field(default_factory=FewShot)
    players: Players = field(default_factory=Players)

    def __post_init__(self) -> None:
        for name in ("steps", "evaluate_every", "log_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be an integer ≥ 1, got {getattr(self, name)}")


def to_json(config: Config) -> str:
    """The config as text, every knob written out."""
    return json.dumps(dataclasses.asdict(config), indent=1) + "\n"


def from_json(text: str) -> Config:
    """The config that :func:`to_json` wrote; an unknown key or a value of another type is an error that names it.

    >>> from_json(to_json(Config(steps=7))).steps
    7
    """
    return _build(Config, json.loads(text), "")


def replace(config: T, **changes: Any) -> T:
    """A copy with knobs changed, nested ones by ``part__knob``.

    >>> replace(Config(), steps=10, head__m=3.0).head.m
    3.0
    """
    nested: dict[str, dict[str, Any]] = {}
    flat: dict[str, Any] = {}
    for key, value in changes.items():
        part, _, rest = key.partition("__")
        if rest:
            nested.setdefault(part, {})[rest] = value
        else:
            flat[key] = value
    flat |= {part: replace(getattr(config, part), **inner) for part, inner in nested.items()}
    return dataclasses.replace(config, **flat)  # type: ignore[type-var]


def differences(one: Config, other: Config) -> dict[str, tuple[Any, Any]]:
    """The knobs that differ, by their path."""
    a, b = _flat(dataclasses.asdict(one)), _flat(dataclasses.asdict(other))
    return {key: (a[key], b[key]) for key in a if a[key] != b[key]}


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _build(kind: type[T], values: Any, path: str) -> T:
    if not isinstance(values, dict):
        raise ValueError(f"{path or 'a config'} must be an object with keys, got {values!r}")
    hints = typing.get_type_hints(kind)
    unknown = values.keys() - hints.keys()
    if unknown:
        raise ValueError(f"{path or 'a config'} has no key {', '.join(sorted(unknown))}; it has {', '.join(hints)}")
    return kind(**{key: _value(hints[key], value, f"{path}.{key}".lstrip(".")) for key, value in values.items()})


def _value(hint: Any, value: Any, path: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return _build(typing.cast(type, hint), value, path)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        kinds = [kind for kind in inner if kind is not type(None)]
        return None if value is None and len(kinds) < len(inner) else _value(kinds[0], value, path)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_value(inner[0], item, path) for item in value)
    if origin is Literal:
        good = value in inner
    else:
        good = (isinstance(value, hint) and (hint is bool or not isinstance(value, bool))) or (
            hint is float and type(value) is int
        )
    if not good:
        accepted = ", ".join(map(repr, inner)) if origin is Literal else getattr(hint, "__name__", str(hint))
        raise ValueError(f"{path} must be {accepted}, got {value!r}")
    return float(value) if hint is float else value
