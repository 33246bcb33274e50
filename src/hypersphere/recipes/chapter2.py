"""Chapter 2: margin objectives, L-Softmax networks (2.2) and SphereFace (2.3)."""

import math
from typing import Any

from .. import models
from ..config import Call, call
from ..data import CIFAR10, CIFAR100, LFW, MNIST, Affine, Digits, Omniglot, PictureFolder, TinyImageNet
from ..models import sphereface4, sphereface20, sphereface64
from ..objectives import Annealing, ASoftmax, LSoftmax, Softmax
from ..training import Config, CosineRate, Faces, OpenSet, Selection, replace
from .recipe_book import CROP_FLIP, MIRROR, Size, decay_at, make_config, make_sgd, make_smoke, recipe

# The dissertation does not say how λ falls. These schedules are those of the authors' code: L-Softmax on MNIST and CIFAR, SphereFace.
MNIST_LAMBDA = call(Annealing, start=1000.0, floor=0.0, rate=2.5e-5, power=35.0)
CIFAR_LAMBDA = call(Annealing, start=1000.0, floor=0.0, rate=1e-5, power=45.0)
SPHEREFACE_LAMBDA = call(Annealing, start=1000.0, floor=5.0, rate=0.12, power=1.0)
SPHEREFACE = call(ASoftmax, m=4, annealing=SPHEREFACE_LAMBDA)
SHORT_LAMBDA = call(Annealing, start=1000.0, floor=0.0, rate=0.1, power=1.0)  # for runs of a few thousand steps


@recipe("lsoftmax-mnist", tables="2.2, fig. 2.2", data="MNIST")
def lsoftmax_mnist(size: Size) -> Config:
    """L-Softmax with m = 4 on MNIST.

    Liu (2020, 2.2.7): batch 256, 18,000 steps at 0.1, divided by 10 after 12,000 and 15,000, weight decay 5e-4, mean
    subtraction, no augmentation, the network of table 2.1. λ follows the authors' code. Pixels are also divided by 128, which
    does not matter because of batch normalization.
    """
    if size == "paper":
        head = call(LSoftmax, m=4, annealing=MNIST_LAMBDA)
        return _make_lsoftmax_config(call(MNIST), call(models.lsoftmax_mnist), head)
    head = call(LSoftmax, m=4, annealing=SHORT_LAMBDA)
    if size == "laptop":
        model = call(models.lsoftmax_mnist, width=0.25)
        common = {"backbone": model, "head": head, "optimizer": make_sgd(0.05), "schedule": decay_at(1000, 1300)}
        return make_config(steps=1500, data=call(MNIST), normalize="unit", **common)
    model = call(models.lsoftmax_mnist, width=0.125)
    few = {"steps": 20, "evaluate_every": 10, "log_every": 5, "checkpoint_every": 10}
    return make_config(
        **few, data=call(Digits), size=16, normalize="unit", backbone=model, head=head, optimizer=make_sgd(0.05)
    )


@recipe("lsoftmax-cifar10", tables="2.3", data="CIFAR10")
def lsoftmax_cifar10(size: Size) -> Config:
    """L-Softmax with m = 4 on CIFAR-10 with augmentation (CIFAR10+).

    Liu (2020, 2.2.7): as on MNIST, with a padding of 4 pixels, a random crop and a horizontal flip. ``augment=none`` is the
    column without augmentation. λ follows the authors' code for CIFAR.
    """
    if size == "paper":
        head = call(LSoftmax, m=4, annealing=CIFAR_LAMBDA)
        return replace(_make_lsoftmax_config(call(CIFAR10), call(models.lsoftmax_cifar10), head), augment=CROP_FLIP)
    head = call(LSoftmax, m=4, annealing=SHORT_LAMBDA)
    if size == "laptop":
        common = {"optimizer": make_sgd(0.05), "schedule": decay_at(800, 1100), "normalize": "pixel_mean"}
        model = call(models.lsoftmax_cifar10, width=0.25)
        return make_config(steps=1200, data=call(CIFAR10), augment=CROP_FLIP, backbone=model, head=head, **common)
    return make_smoke(backbone=call(models.lsoftmax_cifar10, width=0.1, feature_dim=16), head=head)


@recipe("lsoftmax-cifar100", tables="2.4", data="CIFAR100 (laptop: Tiny-ImageNet)")
def lsoftmax_cifar100(size: Size) -> Config:
    """L-Softmax with m = 4 on CIFAR-100.

    Liu (2020, 2.2.7): as on MNIST, without augmentation. λ follows the authors' code for CIFAR. The laptop size uses 100 classes
    of Tiny-ImageNet at 32×32 instead.
    """
    if size == "paper":
        head = call(LSoftmax, m=4, annealing=CIFAR_LAMBDA)
        return _make_lsoftmax_config(call(CIFAR100), call(models.lsoftmax_cifar100), head)
    head = call(LSoftmax, m=4, annealing=SHORT_LAMBDA)
    if size == "laptop":
        common: dict[str, Any] = {"optimizer": make_sgd(0.05), "schedule": decay_at(800, 1100), "size": 32}
        common |= {"normalize": "pixel_mean", "samples": Selection(classes=100)}
        model = call(models.lsoftmax_cifar100, width=0.2)
        return make_config(steps=1200, data=call(TinyImageNet), backbone=model, head=head, **common)
    return make_smoke(backbone=call(models.lsoftmax_cifar100, width=0.06, feature_dim=16), head=head)


def _make_lsoftmax_config(data: Call, model: Call, head: Call) -> Config:
    """Return the config of section 2.2.7, which all three datasets share."""
    return make_config(
        steps=18000,
        evaluate_every=1000,
        batch_size=256,
        data=data,
        normalize="pixel_mean",
        backbone=model,
        head=head,
        optimizer=make_sgd(0.1),
        schedule=decay_at(12000, 15000),
    )


@recipe("sphereface-lfw", tables="2.8, 2.9", data="LFW")
def sphereface_lfw(size: Size) -> Config:
    """SphereFace (A-Softmax, m = 4) for face verification on LFW.

    Liu (2020, 2.3.6): the 64-layer network of table 2.7, batch 128, 28,000 steps at 0.1, divided by 10 after 16,000 and
    24,000, mirrored faces, (x − 127.5)/128, features of a face and its mirror image. It trains on CASIA-WebFace, which is not
    freely available. This recipe trains on the people of the other folds of LFW instead, a hundredth of the pictures, with
    faces of 112×112 instead of 112×96. Weight decay 5e-4 and λ are those of the published code. The smoke size verifies unseen
    digits, because the package contains no faces.
    """
    if size == "smoke":
        return make_open_set(size, SPHEREFACE)
    task, data = call(Faces), call(LFW)
    common: dict[str, Any] = {
        "task": task,
        "data": data,
        "augment": MIRROR,
        "head": SPHEREFACE,
        "optimizer": make_sgd(0.1),
    }
    common |= {"crop": 96, "normalize": "faces", "mirror": True}
    if size == "paper":
        schedule, model = decay_at(16000, 24000), call(sphereface64)
        return make_config(steps=28000, evaluate_every=2000, size=112, backbone=model, schedule=schedule, **common)
    model = call(sphereface4, width=0.25, feature_dim=128, norm="batch")
    return make_config(steps=1200, evaluate_every=300, size=48, backbone=model, schedule=decay_at(700, 1000), **common)


@recipe("sphereface-casia", tables="2.8, 2.9, 2.10, A.2", data="CASIA-WebFace (laptop: Omniglot)")
def sphereface_casia(size: Size) -> Config:
    """SphereFace (A-Softmax, m = 4) on CASIA-WebFace, measured on LFW, YTF and MegaFace.

    Liu (2020, 2.3.6, A.2): as sphereface-lfw, on a folder ``casia-webface`` of aligned faces of 112×96, one sub-folder per person,
    without the people of the benchmarks. A hundredth of the people is not trained on but measured during training. Afterwards
    ``hypersphere evaluate runs/sphereface-casia lfw/pairs.txt`` measures table 2.9 (with ``--per-template`` for the videos of
    YTF), and ``evaluation.distractor_identification`` table 2.10. The 3-patch ensemble consists of three such networks.
    ``backbone=sphereface4`` to ``sphereface36`` are table A.2, ``head.m=1`` to ``3`` table 2.8, ``head=Softmax`` and
    ``losses.0.objective=CenterLoss`` or ``Triplet`` the other losses.
    """
    return make_casia(size, call(sphereface64), SPHEREFACE)


@recipe("sphereface-ablation-casia", tables="A.1", data="CASIA-WebFace (laptop: Omniglot)")
def sphereface_ablation_casia(size: Size) -> Config:
    """Network A of table A.1: SphereFace-4 with a last ReLU and biases, with the softmax loss.

    Liu (2020, A.5): the setting of sphereface-casia with the four-layer network of table 2.7. B is
    ``backbone.last_activation=none``, C also ``head.bias=false``, D ``head=WSoftmax``, and E, F, G ``head=ASoftmax`` with ``head.m`` of 2,
    3 and 4. The angular Fisher score is that of the people who are not trained on.
    """
    model = call(sphereface4, last_activation="relu")
    return make_casia(size, model, call(Softmax, bias=True))


@recipe("lsoftmax-casia", tables="2.5", data="CASIA-WebFace (laptop: Omniglot)")
def lsoftmax_casia(size: Size) -> Config:
    """L-Softmax with m = 4 on CASIA-WebFace, measured on LFW.

    Liu (2020, 2.2.7): the network of table 2.1 for LFW, batch 256, weight decay 5e-4, mean subtraction, about 30 epochs of 490,000
    faces at learning rates of 0.1, 0.01 and 0.001, "switched when the training loss plateaus". Here they switch at the same shares
    of the run as for MNIST. The text does not state λ, so it follows the authors' code for CIFAR. Evaluate as sphereface-casia; the
    text then applies PCA.
    """
    annealing = CIFAR_LAMBDA if size == "paper" else SHORT_LAMBDA
    config = make_casia(size, call(models.lsoftmax_lfw), call(LSoftmax, m=4, annealing=annealing))
    if size != "paper":
        return replace(config, size=64)
    common: dict[str, Any] = {"normalize": "deviation", "schedule": decay_at(38000, 47500), "evaluate_every": 3000}
    return replace(config, steps=57000, batch_size=256, **common)


def make_casia(size: Size, model: Call, head: Call) -> Config:
    """Return the config of a network and a head on CASIA-WebFace. Smaller sizes use digits and characters of Omniglot."""
    if size != "paper":
        config = make_open_set(size, head)
        narrow = {"width": 0.1, "feature_dim": 16} if model.target is models.lsoftmax_lfw else config.backbone.arguments
        return replace(config, backbone=Call(model.target, {**model.arguments, **narrow}))
    return make_config(
        task=call(OpenSet),
        steps=28000,
        evaluate_every=2000,
        monitor="rank1",
        data=call(PictureFolder, folder="casia-webface", size=(112, 96)),
        samples=Selection(validation=0.01),
        normalize="faces",
        mirror=True,
        augment=MIRROR,
        workers=8,
        backbone=model,
        head=head,
        optimizer=make_sgd(0.1),
        schedule=decay_at(16000, 24000),
    )


@recipe("sphereface-omniglot", tables="2.8 (stand-in)", data="Omniglot")
def sphereface_omniglot(size: Size) -> Config:
    """SphereFace (A-Softmax, m = 4) on Omniglot, measured on characters that are not trained on.

    Not in the dissertation: open-set recognition as in 2.3.6 with freely available data. It trains on 964 background characters
    and measures 659 others, as 28×28 images that are rotated, scaled, sheared and shifted a little. The laptop setting was
    chosen on other alphabets. ``paper`` is the network and schedule of table 5.8 for faces, with each character in four
    orientations.
    """
    return make_open_set(size, SPHEREFACE)


def make_open_set(size: Size, head: Call) -> Config:
    """Return the config of a head on Omniglot, or on the digits, measured on classes that are not trained on."""
    if size == "smoke":  # seven digits to train on, three held out
        model = call(sphereface4, width=0.1, feature_dim=16)
        samples = Selection(validation=0.3)
        return make_smoke(
            task=call(OpenSet), evaluate_every=4, monitor="rank1", samples=samples, backbone=model, head=head
        )
    config = make_config(
        task=call(OpenSet, published_runs=True),
        steps=2000,
        evaluate_every=2000,
        monitor="rank1",
        channels_last=True,
        data=call(Omniglot),
        size=28,
        augment=call(Affine, rotation=math.radians(15), scale=0.15, shear=0.2, shift=2.0, fill=255.0),
        backbone=call(sphereface4, width=0.25, feature_dim=128, norm="batch"),
        head=head,
        optimizer=make_sgd(0.1, 2e-3, nesterov=True),
        schedule=call(CosineRate),
    )
    if size == "laptop":
        return config
    paper = {"backbone": call(sphereface20), "optimizer": make_sgd(0.1), "schedule": decay_at(16000, 24000)}
    return replace(config, steps=28000, samples=Selection(rotations=True), **paper)
