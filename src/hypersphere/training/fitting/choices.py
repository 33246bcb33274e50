"""Automatic choices of settings from facts about the data, each with its reason."""

import math
import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import UInt8
from torch import Tensor

from ...config import Call, call, parameters
from ...data import AddNoise, Affine, AudioPreprocessing, Flip, Gain, Preprocessing, RandomCrop
from ...evaluation import fit_descriptors
from ...models import SpectrogramResNet, sphereface4, sphereface10
from ...objectives import ArcFace, CosFace
from ...recognition.baselines import first_identities
from ..datasets import Samples
from ..optimizers import CosineRate
from .settings import FitSettings

MIN_SYMMETRY = 0.9  # correlation of the mean picture with its mirror image above which color pictures are mirrored
MIN_ELONGATION = 1.8  # ratio of the sides above which pictures are treated as spectra
MIN_PICTURES_FOR_DEEP = 5  # pictures per identity at the median, below which a network overfits soon
WINDOW_SECONDS = 2.0  # of a recording, that the network sees at once
MIN_WINDOW_SECONDS = 0.5
RECORDING_PASSES = (
    30  # over the windows of recordings, after which the selection EER no longer fell (docs/log/voices.md)
)
TUNING = (  # how much of a pretrained network learns, from how many training samples on
    ("full", 200_000, "enough to train all layers of a pretrained network"),
    ("oft", 20_000, "enough to rotate the layers of a pretrained network, whose angles between neurons stay"),
    ("last", 5_000, "enough to train the last layers of a pretrained network"),
    ("frozen", 0, "too few to change a pretrained network; only a linear layer behind it can be fitted"),
)
MAX_NETWORKS = 3  # whose features are joined
MAX_NETWORK_SAMPLES = 150_000  # samples that all networks together see in training
MAX_SMALL_SET = 3000  # training pictures up to which gray pictures are reduced to 48×48 pixels instead of 32×32
MAX_MIRRORED = 800  # pictures in the cross-validation that decides on mirror images
USER_REASON = "you asked for it"
MAX_VALUE_LENGTH = 60  # characters of a printed value
MAX_MEMORY = 2 << 30  # bytes of decoded pictures that are kept in memory unless the user says otherwise


@dataclass(frozen=True)
class Choice:
    """A setting of a fit with its key, its value as text, and the reason.

    >>> from hypersphere.training import Choice
    >>> print(Choice("batch_size", "16", "128, or a quarter of a small set"))
    batch_size=16: 128, or a quarter of a small set
    """

    key: str
    value: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}: {self.reason}"


@dataclass(frozen=True)
class Facts:
    """Facts about the data from which settings are chosen.

    Attributes:
        images: Pictures to train on.
        identities: Identities to train on.
        per_identity: The median number of pictures per identity.
        most: The largest number of pictures per identity.
        all_images: Pictures to train on and to measure.
        size: The median height and width.
        channels: 1 where all pictures are gray, else 3.
        accelerated: Whether there is a GPU.
    """

    images: int
    identities: int
    per_identity: float
    most: int
    all_images: int
    size: tuple[int, int]
    channels: int
    accelerated: bool


class MirrorEvidence(NamedTuple):
    """EER of classical descriptors fitted without and with mirror images, and whether they help."""

    plain: float
    mirrored: float
    helps: bool


class Chosen:
    """Settings that are chosen one after the other. Keys that the user gave keep the given value."""

    def __init__(self, given: Collection[str], tree: Call):
        self.given, self.tree = given, tree
        self.choices: list[Choice] = []
        self.kept: dict[str, dict[str, Any]] = {}

    def take(self, key: str, value: Any, reason: str, keep: Collection[str] = ()) -> Any:
        """Set a key unless the user did, and return its value.

        Args:
            key: The setting.
            value: The automatic choice.
            reason: Why, in words.
            keep: Arguments of the automatic choice that a class given by the user inherits if it does not set them.
        """
        assert key in FitSettings.CHOSEN
        if key in self.given:
            automatic, value, reason = value, self.tree.get(key), USER_REASON
            if isinstance(value, Call) and isinstance(automatic, Call):
                free = [n for n in keep if n in parameters(value.target) and n not in value.arguments]
                free = [
                    n for n in free if value.target in (ArcFace, CosFace)
                ]  # other heads scale by the norm or learn it
                if free:
                    self.kept[key] = {name: automatic.get(name) for name in free}
                    value = value.replace(**self.kept[key])
                    self.tree = Call(self.tree.target, {**self.tree.arguments, key: value})
        else:
            self.tree = Call(self.tree.target, {**self.tree.arguments, key: value})
        self.choices.append(Choice(key, format_value(value), reason))
        return value

    def keep_automatic(self, tree: Call) -> Call:
        """Return a tree with the automatic arguments that a class given by the user keeps, such as the scale of a head."""
        for key, values in self.kept.items():
            value = tree.get(key)
            left = {name: automatic for name, automatic in values.items() if name not in value.arguments}
            tree = Call(tree.target, {**tree.arguments, key: value.replace(**left)})
        return tree


def choose_network(chosen: Chosen, facts: Facts, known: Call | None) -> None:
    """Choose the backbone, which is ``known`` if training starts from weights, and the optimizer."""
    few = facts.per_identity < MIN_PICTURES_FOR_DEEP
    middle = f"{facts.per_identity:g} pictures per identity at the median"
    if known is not None:
        chosen.take("backbone", known, "that of the weights")
    elif few and not facts.accelerated:
        why = f"{middle}: a shallow network makes more steps in the same time, which helps more than depth"
        chosen.take("backbone", call(sphereface4, width=0.25, norm="batch"), why)
    else:
        chosen.take("backbone", call(sphereface10, width=0.25, norm="batch"), "it learns from scratch in minutes")
    decay, why = (5e-3, f"{middle} are overfitted soon, so weight decay is larger") if few else (2e-3, "")
    sgd = call(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=decay, nesterov=True)
    chosen.take("optimizer", sgd, why)


def choose_input(chosen: Chosen, facts: Facts) -> None:
    """Choose size and channels of the network's input."""
    height, width = facts.size
    small = facts.images <= MAX_SMALL_SET  # gray pictures of small sets are kept larger: there is time for it
    room = (64 if facts.channels == 1 else 48) if not facts.accelerated else 112
    if height * width <= 64 * 64 or (facts.accelerated and max(height, width) <= room):
        size, why = (height, width), "the pictures' own size at the median"
    else:
        scale = (
            math.sqrt((48 if small or facts.channels == 3 else 32) ** 2 / (height * width))
            if not facts.accelerated
            else (room / max(height, width))
        )
        size = (_round_side(height * scale), _round_side(width * scale))
        where = "a GPU" if facts.accelerated else "a processor without a GPU"
        why = f"{height}×{width} at the median, reduced to what trains in minutes on {where}"
    chosen.take("size", size, why)
    chosen.take("channels", facts.channels, "all pictures are gray" if facts.channels == 1 else "there are colors")


def choose_training(
    chosen: Chosen, facts: Facts, pictures: UInt8[Tensor, "k c h w"], evidence: MirrorEvidence | None = None
) -> None:
    """Choose augmentation of pictures, head, batches, steps, schedule, precision and memory."""
    flips, looks = _choose_flips(facts, pictures, evidence)
    height, width = pictures.shape[2:]
    if max(height, width) >= MIN_ELONGATION * min(height, width):
        flips = False
        chosen.take("augment", (), "such long pictures are rarely photographs: moving them changes what they show")
    else:
        why = looks + (": they are mirrored and not moved" if flips else ": they are moved a little and not mirrored")
        chosen.take("augment", _augment(pictures, flips), why)
    chosen.take("mirror", flips, "features of both are used" if flips else "pictures are not mirrored")
    choose_schedule(chosen, facts)


def choose_for_recordings(chosen: Chosen, facts: Facts, preprocessing: AudioPreprocessing) -> None:
    """Choose network, optimizer, augmentation and schedule for recordings."""
    network = call(SpectrogramResNet, bands=preprocessing.bands, stride=2, center=not preprocessing.center)
    chosen.take("backbone", network, "a small residual network over spectrograms learns from scratch in minutes")
    sgd = call(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=2e-3, nesterov=True)
    chosen.take("optimizer", sgd, "")
    crop = call(RandomCrop, samples=preprocessing.shape[0])
    noise = call(AddNoise, low=10.0, high=30.0, rate=preprocessing.rate)
    why = "random parts of each recording, at a random level, half of them with synthetic noise"
    chosen.take("augment", (crop, call(Gain), noise), why)
    chosen.take("mirror", False, "")
    choose_schedule(chosen, facts, "window", RECORDING_PASSES)


def choose_for_pretrained(
    chosen: Chosen, facts: Facts, backbone: Call, preprocessing: Preprocessing, name: str
) -> None:
    """Choose how much of a pretrained network learns, and how, by the number of training samples."""
    how, why = choose_tuning(facts)
    how = chosen.take("tune", how, why)
    chosen.take("backbone", backbone, f"that of {name}")
    chosen.take("mirror", preprocessing.mirror, f"as {name} does")
    flips = call(Flip) if preprocessing.medium == "picture" and preprocessing.content == "face" else None
    augment = (flips,) if flips is not None and how != "frozen" else ()
    chosen.take("augment", augment, "faces are mirrored" if augment else "")
    rate = 1e-4 if how == "full" else 1e-3
    adam = call(torch.optim.AdamW, lr=rate, weight_decay=0.05)
    chosen.take("optimizer", adam, "" if how == "frozen" else "small steps keep what the network knows")
    if how == "frozen":
        chosen.take("steps", 0, "the pretrained network stays as it is")
        chosen.take("schedule", call(CosineRate), "")
        chosen.take("ema", None, "")
    else:
        choose_schedule(chosen, facts, "sample", passes=5)


def choose_tuning(facts: Facts) -> tuple[str, str]:
    """Return how much of a pretrained network learns, and why.

    >>> facts = Facts(400, 40, 10.0, 10, 500, (112, 112), 3, False)
    >>> choose_tuning(facts)
    ('frozen', '400 training samples of 40 identities are too few to change a pretrained network; only a linear ...')
    """
    how, _, what = next(entry for entry in TUNING if facts.images >= entry[1])
    return how, f"{facts.images} training samples of {facts.identities} identities are {what}"


def choose_schedule(chosen: Chosen, facts: Facts, noun: str = "picture", passes: int | None = None) -> None:
    """Choose head, batch size, steps, learning rate schedule and how often a run is measured.

    Args:
        chosen: The choices so far.
        facts: What they are made from.
        noun: What a training sample is, for the reason.
        passes: How often each sample is seen; by default it depends on the samples per identity.
    """
    _head(chosen, facts)
    batch = chosen.take("batch_size", min(128, max(16, facts.images // 4)), "128, or a quarter of a small set")
    if passes is None:
        # A small set, and few samples per identity, are overfitted when seen more often.
        often = 20 if facts.per_identity < MIN_PICTURES_FOR_DEEP else 40
        seen = max(often * facts.images, min(50 * facts.images, 60_000))
    else:
        seen = passes * facts.images
    seen = min(seen, 500_000)
    why = f"each of {facts.images} {noun}s is seen {seen / facts.images:.0f} times"
    steps = chosen.take("steps", max(seen // batch, 200), why)
    chosen.take("schedule", call(CosineRate, warmup=min(100, steps // 10)), "half a cosine after a short warm-up")
    chosen.take("ema", 0.99, "the moving average of the weights generalizes better than the last weights")
    chosen.take("evaluate_every", max(steps // 10, 1), "ten times")
    chosen.take("checkpoint_every", max(min(steps // 10, 200), 1), "so that little is lost when the run is stopped")
    chosen.take("log_every", max(min(steps // 100, 50), 1), "")
    chosen.take("sampler", None, "every sample counts alike; blocks of few identities are for losses of pairs")
    _machine(chosen, facts)


def choose_networks(chosen: Chosen, pretrained: bool) -> None:
    """Choose the number of networks from the samples that one of them sees in training; one if it starts from weights."""
    seen = max(chosen.tree.get("steps") * chosen.tree.get("batch_size"), 1)
    count = min(MAX_NETWORKS, max(1, MAX_NETWORK_SAMPLES // seen))
    why = "joined networks of different seeds recognize new identities better than one"
    if pretrained or chosen.tree.get("weights") is not None:
        count, why = 1, "networks that start from the same weights are alike"
    elif count == 1:
        why = f"one network sees {seen} samples in training, so more would take too long"
    chosen.take("networks", count, why)


def measure_mirroring(train: Samples) -> MirrorEvidence | None:
    """Return the EER of classical descriptors with and without mirror images, cross-validated over training identities.

    None for long pictures such as spectra, which are never mirrored, and if there are too few identities.
    """
    rows = first_identities(train.labels, MAX_MIRRORED)
    stored, labels = train.batch(rows)
    counts = labels.unique(return_counts=True)[1]
    if stored.ndim != 4 or min(stored.shape[2:]) < 8 or len(counts) < 2 or int(counts.max()) < 2:
        return None
    fitted = fit_descriptors(stored.float() / 255, labels, filters=0)
    if fitted.plain_eer is None or fitted.mirrored_eer is None:
        return None
    return MirrorEvidence(fitted.plain_eer, fitted.mirrored_eer, fitted.mirrored)


def _choose_flips(facts: Facts, pictures: Tensor, evidence: MirrorEvidence | None) -> tuple[bool, str]:
    """Decide whether to train on mirror images, with the reason."""
    if evidence is not None:
        return evidence.helps, (
            "with mirror images the EER of classical descriptors on training identities left out in turn is "
            f"{100 * evidence.mirrored:.3g} %, without {100 * evidence.plain:.3g} %"
        )
    symmetry = measure_symmetry(pictures)
    return symmetry >= MIN_SYMMETRY and facts.channels == 3, (
        f"the mean picture correlates {symmetry:.2f} with its mirror image"
    )


def measure_symmetry(pictures: UInt8[Tensor, "k c h w"]) -> float:
    """Return the correlation of the mean picture with its mirror image; 1 where it has no structure at all.

    >>> measure_symmetry(torch.tensor([[[[0, 9, 0]]]], dtype=torch.uint8))
    1.0
    """
    mean = pictures.double().mean((0, 1))
    mean = mean - mean.mean()
    power = (mean * mean).sum()
    return float((mean * mean.flip(1)).sum() / power) if power > 0 else 1.0


def measure_border(pictures: UInt8[Tensor, "k c h w"]) -> float:
    """Return the median pixel of the pictures' borders, used to fill pixels from outside."""
    edges = torch.cat([pictures[..., 0, :].flatten(), pictures[..., -1, :].flatten(), pictures[..., 0].flatten()])
    return float(edges.median())


def format_value(value: Any) -> str:
    """Return a value as text: calls by their name and arguments."""
    if isinstance(value, Call):
        inner = ", ".join(f"{name}={format_value(argument)}" for name, argument in value.arguments.items())
        return f"{value.name}({inner})"
    if isinstance(value, tuple):
        return ",".join(map(format_value, value)) or "none"
    if isinstance(value, str) and len(value) > MAX_VALUE_LENGTH:
        return f"{value[:MAX_VALUE_LENGTH]}…"
    return (
        "none"
        if value is None
        else str(value).lower()
        if isinstance(value, bool)
        else (f"{value:.4g}" if isinstance(value, float) else str(value))
    )


def _augment(pictures: Tensor, flips: bool) -> tuple[Call, ...]:
    """Return the augmentation: mirror images alone for aligned pictures such as faces, otherwise small affine maps."""
    if flips:
        return (call(Flip),)
    height, width = pictures.shape[2:]
    fill, shift = measure_border(pictures), round(0.07 * min(height, width), 1)
    return (call(Affine, rotation=0.2, scale=0.15, shear=0.15, shift=shift, fill=fill),)


def _head(chosen: Chosen, facts: Facts) -> None:
    scale = float(min(max(round(2 * math.sqrt(2) * math.log(max(facts.identities - 1, 2))), 12), 32))
    if facts.identities >= 2000 and facts.per_identity >= 20:
        head = call(ArcFace, m=0.3, scale=scale, sub_centers=3)
        why = "thousands of identities with many pictures have some wrong labels, which sub-centers absorb"
    else:
        head = call(CosFace, m=0.2, scale=scale)
        why = f"{facts.identities} identities with {facts.per_identity:g} samples at the median"
    chosen.take("head", head, why + "; the scale is twice that of AdaCos for this number", keep=("scale",))


def _machine(chosen: Chosen, facts: Facts) -> None:
    half = facts.accelerated and torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    chosen.take(
        "precision",
        "bf16" if half else "no",
        "the GPU computes in it" if half else "float32: half precision does not pay off here",
    )
    settings: FitSettings = chosen.tree.build()
    long = facts.accelerated and settings.steps >= 5000
    chosen.take(
        "compile", long, "it pays off in a long run on a GPU" if long else "compiling would take longer than it saves"
    )
    chosen.take("channels_last", True, "convolutions run faster in this memory layout")


def choose_memory(chosen: Chosen, facts: Facts) -> None:
    """Choose whether all pictures are decoded into memory, and the number of threads that decode."""
    settings: FitSettings = chosen.tree.build()
    assert settings.input_size is not None
    assert settings.channels is not None
    height, width = settings.input_size
    needed = facts.all_images * settings.channels * height * width
    fits = needed <= MAX_MEMORY
    where = f"{needed / 1e6:.{0 if needed > 1e7 else 1}f} MB of decoded pictures"
    chosen.take(
        "memory", fits and settings.cache is None, where + (" fit" if fits else " are read when they are needed")
    )
    workers = 0 if chosen.tree.get("memory") else min(os.cpu_count() or 1, 8)
    chosen.take("workers", workers, "pictures are in memory" if not workers else "decoding ahead of the step")


def _round_side(side: float) -> int:
    return max(4 * round(side / 4), 8)
