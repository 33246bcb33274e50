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
from ...models.descriptors import MIN_ELONGATION
from ...objectives import ArcFace, CosFace
from ...recognition.baselines import first_identities
from ..datasets import Samples
from ..optimizers import CosineRate
from .settings import FitSettings

MIN_SYMMETRY = 0.9  # correlation of the mean picture with its mirror image from which on color pictures are mirrored
MIN_PICTURES_FOR_DEEP = 5  # median number of pictures per identity, below which a deep network overfits
MAX_SIZE = 64  # pixels per side of pictures that keep their size without a GPU
MAX_GPU_SIDE = 112  # pixels of the longer side with a GPU
SMALL_SET_SIDE = 48  # pixels per side to which larger pictures are reduced without a GPU
LARGE_GRAY_SET_SIDE = 32  # the same for gray pictures of a large set
MAX_SMALL_SET = 3000  # training pictures of a small set
WINDOW_SECONDS = 2.0  # largest part of a recording that the network sees at once
MIN_WINDOW_SECONDS = 0.5
RECORDING_EPOCHS = 30  # over windows of recordings; later the selection EER no longer fell (docs/log/voices.md)
TUNING_EPOCHS = 5  # over the training samples of a pretrained network
MAX_SAMPLES_SEEN = 500_000  # by one network in training
TUNING = (  # how much of a pretrained network is trained, and the least number of training samples for it
    ("full", 200_000, "enough to train all layers of a pretrained network"),
    ("oft", 20_000, "enough for orthogonal fine-tuning, which rotates the neurons of each layer together"),
    ("last", 5_000, "enough to train the last layers of a pretrained network"),
    ("frozen", 0, "too few to train a pretrained network; only a linear layer may be fitted behind it"),
)
MAX_NETWORKS = 3  # whose features are joined
MAX_NETWORK_SAMPLES = 150_000  # samples that all networks together see in training
MAX_MIRRORED = 800  # pictures in the cross-validation that decides on mirror images
USER_REASON = "you asked for it"
MAX_VALUE_LENGTH = 60  # characters of a printed value
MAX_MEMORY = 2 << 30  # bytes of decoded pictures that are kept in memory unless the user says otherwise


@dataclass(frozen=True)
class Choice:
    """A setting of a fit with its key, its value as text, and the reason.

    >>> from hypersphere.training import Choice
    >>> print(Choice("batch_size", "16", "a quarter of the training samples, limited to 16–128"))
    batch_size=16: a quarter of the training samples, limited to 16–128
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
        all_images: Pictures to train on and to measure.
        size: The median height and width.
        channels: 1 if all pictures are gray, otherwise 3.
        accelerated: Whether there is a GPU.
    """

    images: int
    identities: int
    per_identity: float
    all_images: int
    size: tuple[int, int]
    channels: int
    accelerated: bool


class MirrorEvidence(NamedTuple):
    """EER of classical descriptors fitted without and with mirror images, and whether they help."""

    plain: float
    mirrored: float
    helps: bool


class Chooser:
    """Settings that are chosen one after the other, with reasons. Settings of the user keep their values.

    Args:
        given: The keys that the user set.
        tree: The settings of the user and the defaults.
    """

    def __init__(self, given: Collection[str], tree: Call):
        self.given, self.tree = given, tree
        self.choices: list[Choice] = []
        self.inherited: dict[str, dict[str, Any]] = {}

    def choose(self, key: str, automatic: Any, reason: str, inherit: Collection[str] = ()) -> Any:
        """Set a key unless the user did, and return its value.

        Args:
            key: The setting.
            automatic: The automatic choice.
            reason: Why, in words; an empty reason is not printed.
            inherit: Arguments of the automatic choice that a class given by the user inherits if it does not set them.
        """
        assert key in FitSettings.CHOSEN
        if key not in self.given:
            self.tree = Call(self.tree.target, {**self.tree.arguments, key: automatic})
        elif isinstance(automatic, Call):
            self._inherit(key, automatic, inherit)
        self.note(key, USER_REASON if key in self.given else reason)
        return self.tree.get(key)

    def note(self, key: str, reason: str) -> None:
        """Record the reason for the current value of a key."""
        self.choices.append(Choice(key, format_value(self.tree.get(key)), reason))

    def _inherit(self, key: str, automatic: Call, names: Collection[str]) -> None:
        """Let a class given by the user inherit arguments. Heads other than ArcFace and CosFace scale in their own way."""
        value = self.tree.get(key)
        if not isinstance(value, Call) or value.target not in (ArcFace, CosFace):
            return
        free = [name for name in names if name in parameters(value.target) and name not in value.arguments]
        if free:
            self.inherited[key] = {name: automatic.get(name) for name in free}
            self.tree = Call(self.tree.target, {**self.tree.arguments, key: value.replace(**self.inherited[key])})

    def restore_inherited(self, tree: Call) -> Call:
        """Return a tree with the inherited arguments that it does not set."""
        for key, values in self.inherited.items():
            value = tree.get(key)
            missing = {name: automatic for name, automatic in values.items() if name not in value.arguments}
            tree = Call(tree.target, {**tree.arguments, key: value.replace(**missing)})
        return tree


def choose_network(chooser: Chooser, facts: Facts, stored: Call | None) -> None:
    """Choose the backbone, which is ``stored`` if training starts from weights, and the optimizer."""
    is_small = facts.per_identity < MIN_PICTURES_FOR_DEEP
    median = f"a median of {facts.per_identity:g} pictures per identity"
    if stored is not None:
        chooser.choose("backbone", stored, "the network of the given weights")
    elif is_small and not facts.accelerated:
        reason = f"with {median}, a shallow network is better, because it makes more steps in the same time"
        chooser.choose("backbone", call(sphereface4, width=0.25, norm="batch"), reason)
    else:
        reason = "a narrow network learns from scratch in minutes"
        chooser.choose("backbone", call(sphereface10, width=0.25, norm="batch"), reason)
    decay, reason = 2e-3, ""
    if is_small:
        decay, reason = 5e-3, f"larger weight decay against overfitting, because there are few pictures ({median})"
    sgd = call(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=decay, nesterov=True)
    chooser.choose("optimizer", sgd, reason)


def choose_input(chooser: Chooser, facts: Facts) -> None:
    """Choose size and channels of the network's input."""
    height, width = facts.size
    is_color = facts.channels == 3
    if height * width <= MAX_SIZE**2 or (facts.accelerated and max(height, width) <= MAX_GPU_SIDE):
        size, reason = (height, width), "the median size of the pictures"
    else:
        if facts.accelerated:
            scale, device = MAX_GPU_SIDE / max(height, width), "a GPU"
        else:
            side = SMALL_SET_SIDE if is_color or facts.images <= MAX_SMALL_SET else LARGE_GRAY_SET_SIDE
            scale, device = math.sqrt(side**2 / (height * width)), "a processor without a GPU"
        size = (_round_side(height * scale), _round_side(width * scale))
        reason = f"the median size {height}×{width} is reduced so that training takes minutes on {device}"
    chooser.choose("size", size, reason)
    chooser.choose("channels", facts.channels, "there are color pictures" if is_color else "all pictures are gray")


def choose_training(
    chooser: Chooser, facts: Facts, pictures: UInt8[Tensor, "k c h w"], evidence: MirrorEvidence | None = None
) -> None:
    """Choose augmentation of pictures, head, batches, steps, schedule, precision and memory."""
    mirror, reason = _choose_mirroring(facts, pictures, evidence)
    height, width = pictures.shape[2:]
    if max(height, width) >= MIN_ELONGATION * min(height, width):
        mirror = False
        reason = "long pictures such as spectra change their meaning when they are moved or mirrored"
        chooser.choose("augment", (), reason)
    elif mirror:  # pictures that are aligned, such as faces
        chooser.choose("augment", (call(Flip),), f"mirror images and no shifts or rotations, because {reason}")
    else:
        shift = round(0.07 * min(height, width), 1)
        affine = call(Affine, rotation=0.2, scale=0.15, shear=0.15, shift=shift, fill=measure_border(pictures))
        chooser.choose("augment", (affine,), f"small shifts and rotations and no mirror images, because {reason}")
    reason = "features of a picture and of its mirror image are joined" if mirror else "mirror images are not used"
    chooser.choose("mirror", mirror, reason)
    choose_schedule(chooser, facts)


def choose_for_recordings(chooser: Chooser, facts: Facts, preprocessing: AudioPreprocessing) -> None:
    """Choose network, optimizer, augmentation and schedule for recordings."""
    network = call(SpectrogramResNet, bands=preprocessing.bands, stride=2, center=not preprocessing.center)
    chooser.choose("backbone", network, "a small residual network over spectrograms learns from scratch in minutes")
    sgd = call(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=2e-3, nesterov=True)
    chooser.choose("optimizer", sgd, "")
    crop = call(RandomCrop, samples=preprocessing.shape[0])
    noise = call(AddNoise, low=10.0, high=30.0, rate=preprocessing.rate)
    reason = "random parts of each recording at a random level; synthetic noise is added to half of them"
    chooser.choose("augment", (crop, call(Gain), noise), reason)
    chooser.choose("mirror", False, "")
    choose_schedule(chooser, facts, "window", RECORDING_EPOCHS)


def choose_for_pretrained(
    chooser: Chooser, facts: Facts, backbone: Call, preprocessing: Preprocessing, name: str
) -> None:
    """Choose how much of a pretrained network is trained, and how, by the number of training samples."""
    tune = chooser.choose("tune", *choose_tuning(facts))
    chooser.choose("backbone", backbone, f"the network of {name}")
    is_picture = preprocessing.medium == "picture"
    chooser.choose("mirror", preprocessing.mirror, f"as in {name}" if is_picture else "")
    is_face = is_picture and preprocessing.content == "face"
    augment = (call(Flip),) if is_face and tune != "frozen" else ()
    chooser.choose("augment", augment, "mirror images of faces look like faces" if augment else "")
    rate = 1e-4 if tune == "full" else 1e-3
    adam = call(torch.optim.AdamW, lr=rate, weight_decay=0.05)
    reason = "" if tune == "frozen" else "a small learning rate preserves the pretrained features"
    chooser.choose("optimizer", adam, reason)
    if tune == "frozen":
        chooser.choose("steps", 0, "the pretrained network is not trained")
        chooser.choose("schedule", call(CosineRate), "")
        chooser.choose("ema", None, "")
    else:
        choose_schedule(chooser, facts, "sample", TUNING_EPOCHS)


def choose_tuning(facts: Facts) -> tuple[str, str]:
    """Return how much of a pretrained network is trained, and why.

    >>> facts = Facts(400, 40, 10.0, 500, (112, 112), 3, False)
    >>> choose_tuning(facts)
    ('frozen', '400 training samples of 40 identities are too few to train a pretrained network; only a linear ...')
    """
    tune, _, verdict = next(entry for entry in TUNING if facts.images >= entry[1])
    return tune, f"{facts.images} training samples of {facts.identities} identities are {verdict}"


def choose_schedule(chooser: Chooser, facts: Facts, noun: str = "picture", epochs: int | None = None) -> None:
    """Choose head, batch size, steps, learning rate schedule and how often a run is measured.

    Args:
        chooser: The choices so far.
        facts: What they are made from.
        noun: What a training sample is, for the reason.
        epochs: How often each sample is seen; by default it depends on the samples per identity.
    """
    _choose_head(chooser, facts)
    reason = "a quarter of the training samples, limited to 16–128"
    batch = chooser.choose("batch_size", min(128, max(16, facts.images // 4)), reason)
    if epochs is None:
        # A network overfits if it sees a small set, or few samples per identity, more often.
        default_epochs = 20 if facts.per_identity < MIN_PICTURES_FOR_DEEP else 40
        seen = max(default_epochs * facts.images, min(50 * facts.images, 60_000))
    else:
        seen = epochs * facts.images
    seen = min(seen, MAX_SAMPLES_SEEN)
    reason = f"each of the {facts.images} {noun}s is seen {seen / facts.images:.0f} times"
    steps = chooser.choose("steps", max(seen // batch, 200), reason)
    choose_intervals(chooser, steps)
    chooser.choose("ema", 0.99, "the moving average of the weights generalizes better than the last weights")
    reason = "samples are drawn in random order; batches of a few identities are meant for pair losses"
    chooser.choose("sampler", None, reason)
    _choose_computation(chooser, facts)


def choose_intervals(chooser: Chooser, steps: int) -> None:
    """Choose the learning rate schedule for a number of steps, and how often a run is measured, saved and logged."""
    reason = "the learning rate falls along half a cosine after a short warm-up"
    chooser.choose("schedule", call(CosineRate, warmup=count_warmup_steps(steps)), reason)
    reasons = {
        "evaluate_every": "the network is measured ten times during training",
        "checkpoint_every": "little is lost if the run is stopped",
        "log_every": "",
    }
    for key, value in compute_intervals(steps).items():
        chooser.choose(key, value, reasons[key])


def compute_intervals(steps: int) -> dict[str, int]:
    """Return the steps between two evaluations, two checkpoints and two rows of the log.

    >>> compute_intervals(1000)
    {'evaluate_every': 100, 'checkpoint_every': 100, 'log_every': 10}
    """
    return {
        "evaluate_every": max(steps // 10, 1),
        "checkpoint_every": max(min(steps // 10, 200), 1),
        "log_every": max(min(steps // 100, 50), 1),
    }


def count_warmup_steps(steps: int) -> int:
    """Return the number of steps in which the learning rate rises: a tenth of all, at most 100."""
    return min(100, steps // 10)


def choose_number_of_networks(chooser: Chooser, *, is_pretrained: bool) -> None:
    """Choose the number of networks from the samples that one of them sees in training; one if it starts from weights."""
    seen = max(chooser.tree.get("steps") * chooser.tree.get("batch_size"), 1)
    count = min(MAX_NETWORKS, max(1, MAX_NETWORK_SAMPLES // seen))
    reason = f"{count} joined networks with different seeds recognize new identities better than one"
    if is_pretrained or chooser.tree.get("weights") is not None:
        count, reason = 1, "networks that start from the same weights are too similar to be joined"
    elif count == 1:
        reason = f"one network sees {seen} samples in training, so more networks would take too long"
    chooser.choose("networks", count, reason)


def measure_mirroring(train: Samples) -> MirrorEvidence | None:
    """Return the EER of classical descriptors with and without mirror images, cross-validated over training identities.

    Return None for long pictures such as spectra, which are never mirrored, and if there are too few identities.
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


def _choose_mirroring(facts: Facts, pictures: Tensor, evidence: MirrorEvidence | None) -> tuple[bool, str]:
    """Return whether to train on mirror images, and why."""
    if evidence is not None:
        return evidence.helps, (
            f"the EER of classical descriptors is {100 * evidence.mirrored:.3g} % with mirror images and "
            f"{100 * evidence.plain:.3g} % without (cross-validation over training identities)"
        )
    symmetry = measure_symmetry(pictures)
    kind = "color" if facts.channels == 3 else "gray"
    reason = f"the mean of the {kind} pictures has a correlation of {symmetry:.2f} with its mirror image"
    return symmetry >= MIN_SYMMETRY and facts.channels == 3, reason


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
        arguments = ", ".join(f"{name}={format_value(argument)}" for name, argument in value.arguments.items())
        return f"{value.name}({arguments})"
    if isinstance(value, tuple):
        return ",".join(map(format_value, value)) or "none"
    if isinstance(value, str) and len(value) > MAX_VALUE_LENGTH:
        return f"{value[:MAX_VALUE_LENGTH]}…"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def choose_memory(chooser: Chooser, facts: Facts) -> None:
    """Choose whether all pictures are decoded into memory, and the number of threads that decode."""
    settings: FitSettings = chooser.tree.build()
    assert settings.input_size is not None
    assert settings.channels is not None
    height, width = settings.input_size
    needed = facts.all_images * settings.channels * height * width
    size = f"{math.ceil(needed / 1e6)} MB"
    if needed <= MAX_MEMORY:
        reason = f"the decoded pictures need {size} and fit into memory"
    else:
        reason = f"the decoded pictures would need {size}, so pictures are decoded when they are needed"
    chooser.choose("memory", needed <= MAX_MEMORY and settings.cache is None, reason)
    if chooser.tree.get("memory"):
        chooser.choose("workers", 0, "nothing is decoded during training, because pictures are in memory")
    else:
        workers = min(os.cpu_count() or 1, 8)
        chooser.choose("workers", workers, "these threads decode pictures while the network is trained")


def _choose_head(chooser: Chooser, facts: Facts) -> None:
    """Choose the head. Its scale is twice that of AdaCos (Zhang et al., 2019), √2 log(classes − 1), within 12 … 32."""
    scale = float(min(max(round(2 * math.sqrt(2) * math.log(max(facts.identities - 1, 2))), 12), 32))
    if facts.identities >= 2000 and facts.per_identity >= 20:
        head = call(ArcFace, m=0.3, scale=scale, sub_centers=3)
        reason = "large sets have some wrong labels, which sub-centers tolerate"
    else:
        head = call(CosFace, m=0.2, scale=scale)
        reason = f"a small margin for a median of {facts.per_identity:g} samples per identity"
    reason = f"{reason}; the scale follows from the number of identities ({facts.identities})"
    chooser.choose("head", head, reason, inherit=("scale",))


def _choose_computation(chooser: Chooser, facts: Facts) -> None:
    """Choose precision, compilation and memory layout."""
    if facts.accelerated and torch.cuda.is_available() and torch.cuda.is_bf16_supported():
        chooser.choose("precision", "bf16", "the GPU computes in bfloat16")
    else:
        chooser.choose("precision", "no", "no mixed precision, because it is not faster on this device")
    if facts.accelerated and chooser.tree.get("steps") >= 5000:
        chooser.choose("compile", True, "compiling pays off in a long run on a GPU")
    else:
        chooser.choose("compile", False, "compiling would take longer than it saves")
    chooser.choose("channels_last", True, "convolutions run faster in this memory layout")


def _round_side(side: float) -> int:
    return max(4 * round(side / 4), 8)
