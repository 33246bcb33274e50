"""Chapter 4: decoupled networks (magnitude times angular function) and their adversarial robustness."""

from typing import Any

from ..angular import Cosine
from ..config import Call, call
from ..data import CIFAR10, CIFAR100, Digits, TinyImageNet
from ..energy import Orthogonality
from ..models import cnn9, modified_resnet18, resnet32
from ..objectives import Softmax, WSoftmax
from ..operators import Operator
from ..operators.magnitudes import Sphere, Tanh
from ..training import Adversarial, Config, Selection, replace
from .recipe_book import (
    CENTERED,
    CROP_FLIP_BOTH,
    Size,
    make_adam,
    make_config,
    make_imagenet,
    make_saturated_schedule,
    make_smoke,
    recipe,
    shrink_depth,
)

TANH = call(Operator, magnitude=call(Tanh), angular=call(Cosine))  # the learned radius ρ starts at 1 (C.1–C.3)
SPHERE = call(Operator, magnitude=call(Sphere), angular=call(Cosine))
ORTHOGONAL = call(Orthogonality, hidden=1e-5)


@recipe("dcnet-cifar10", tables="4.5", data="CIFAR10")
def dcnet_cifar10(size: Size) -> Config:
    """Decoupled ResNet-32 on CIFAR-10: TanhConv with a learned radius, weight projection, and the W-Softmax.

    Settings of Liu (2020, 4.6, C.1, C.2): ResNet-32 of table C.1, Adam with learning rate 0.001, batch size 128, weight
    projection with s = 1, the orthogonality constraint, no weight decay, ρ learned and starting at 1, crops and both flips as in
    chapter 3. The learning rate is reduced "when the error plateaus"; the text does not state the steps. The following settings
    are those of the authors' code: 42,500 steps with the milestones of D.1, a projection every 100 steps, plain 1×1 shortcuts and
    the input normalization (x − 127.5)/128. For the CIFAR-100 column of table 4.5, set ``data=CIFAR100``.
    """
    config = replace(dcnet_resnet_cifar100(size), head=call(WSoftmax))
    return config if size == "smoke" else replace(config, data=call(CIFAR10), samples=Selection(), size=None)


@recipe("dcnet-cifar100", tables="4.2, 4.3", data="CIFAR100 (laptop: Tiny-ImageNet)")
def dcnet_cifar100(size: Size) -> Config:
    """Decoupled operators in CNN-9 on CIFAR-100, with the softmax loss and weight projection.

    Settings of Liu (2020, 4.6.1, C.1): CNN-9 of table C.1, otherwise as in dcnet-cifar10. ``backbone.norm=none`` gives table 4.2
    and ``backbone.activation=none`` the first half of table 4.3. Choose other operators with, for example,
    ``backbone.operator.magnitude=Ball`` and ``backbone.operator.angular=SquareCosine``. The baseline with plain convolutions is
    ``backbone.operator=none energy=none project_every=0 optimizer.weight_decay=5e-4``, as in the authors' code.
    """
    return _make_decoupled_config(size, call(cnn9, table="C.1", operator=TANH))


@recipe("dcnet-resnet-cifar100", tables="4.1, 4.4, C.2", data="CIFAR100 (laptop: Tiny-ImageNet)")
def dcnet_resnet_cifar100(size: Size) -> Config:
    """Decoupled operators in ResNet-32 on CIFAR-100, with the softmax loss and weight projection.

    Settings of Liu (2020, 4.6.1, C.1): ResNet-32 of table C.1, otherwise as in dcnet-cifar100. For table 4.1, set
    ``project_every=0``: alone it gives standard gradients, with ``weighted_gradients=true`` weighted gradients, and with
    ``backbone.operator.magnitude.weighted=linear``, ``tanh_product`` or ``product_of_tanh`` the weighted operators. For table
    C.2, set ``optimizer=SGD optimizer.lr=0.1 optimizer.momentum=0.9``.
    """
    return _make_decoupled_config(size, call(resnet32, table="C.1", shortcut="plain", operator=TANH))


@recipe("dcnet-imagenet", tables="4.6", data="ImageNet (laptop: Tiny-ImageNet)")
def dcnet_imagenet(size: Size) -> Config:
    """Decoupled operators in the modified ResNet-18 on ImageNet: TanhConv with weight projection.

    Settings of Liu (2020, 4.6, C.1, C.2): SGD with momentum 0.9, learning rate 0.1 and batch size 40. The learning rate is
    divided by 10 "when the error plateaus"; the recipe divides it at the steps of chapter 3. ``backbone.norm=none`` gives the last
    column of table 4.6. The first column starts from the weights of the plain network: train it with ``backbone=resnet18
    backbone.operator=none energy=none project_every=0 -o runs/plain``, then run ``backbone=resnet18 weights=runs/plain``. The
    laptop size uses 100 classes of Tiny-ImageNet at 32×32 pixels.
    """
    model = call(modified_resnet18, operator=TANH)
    if size == "paper":
        parts: dict[str, Any] = {"backbone": model, "energy": ORTHOGONAL, "project_every": 100}
        return make_imagenet(550000, 40, (200000, 375000), 0.0, **parts)
    return _make_decoupled_config(size, model)


def _make_decoupled_config(size: Size, model: Call) -> Config:
    common: dict[str, Any] = {"head": call(Softmax), "energy": ORTHOGONAL, "normalize": CENTERED}
    if size == "smoke":
        small = {"width": 0.06, "feature_dim": 16} if model.target is cnn9 else {"width": 0.03}
        return make_smoke(
            backbone=shrink_depth(model).replace(**small), optimizer=make_adam(1e-3), project_every=2, **common
        )
    common["augment"] = CROP_FLIP_BOTH
    if size == "paper":
        timing = {
            "steps": 42500,
            "evaluate_every": 2500,
            "optimizer": make_adam(1e-3),
            "schedule": make_saturated_schedule(),
        }
        return make_config(**timing, data=call(CIFAR100), backbone=model, project_every=100, **common)
    small = {"width": 0.25, "feature_dim": 128} if model.target is cnn9 else {"width": 0.125}
    common |= {"data": call(TinyImageNet), "size": 32, "samples": Selection(classes=100)}
    timing = {
        "steps": 1200,
        "evaluate_every": 300,
        "optimizer": make_adam(2e-3),
        "schedule": make_saturated_schedule(1200),
    }
    return make_config(**timing, backbone=model.replace(**small), project_every=10, **common)


@recipe("adversarial-cifar10", tables="4.7, 4.8", data="CIFAR10")
def adversarial_cifar10(size: Size) -> Config:
    """Adversarial training with FGSM: a SphereConv network, evaluated under FGSM, BIM and PGD attacks.

    Settings of Liu (2020, 4.6.2, C.1.2): the CNN-9 for attacks of table C.1, no batch normalization, Adam, FGSM with ε = 8/255 in
    training, BIM with τ = 2 and N = 20, standard gradients. As in the authors' code, the input normalization (x − 127.5)/128 is part
    of the attacked network, and attacked pixels stay in [0, 1]. Learning rate and batch size are those of the other experiments
    (0.001, 128). The text does not state the number of steps, so it is that of dcnet-cifar10. ``task.attacked=0`` gives natural
    training, ``backbone.operator=none`` the baseline, and ``backbone.operator.magnitude=Ball`` or ``Tanh`` (with a learned ρ) the
    other columns. For table 4.8, train ``task.attacked=0 backbone.operator=none seed=1`` first, then set ``task.surrogate`` to the
    folder of that run.
    """
    model = call(cnn9, table="C.1 adversarial", norm="none", operator=SPHERE)
    if size == "smoke":
        small = model.replace(width=0.1, feature_dim=16)
        task = call(Adversarial, iterations=2, attacked_images=64)
        return make_smoke(task=task, data=call(Digits), normalize=CENTERED, backbone=small, optimizer=make_adam(1e-3))
    common: dict[str, Any] = {
        "data": call(CIFAR10),
        "normalize": CENTERED,
        "augment": CROP_FLIP_BOTH,
        "optimizer": make_adam(1e-3),
    }
    if size == "paper":
        task = call(Adversarial, attacked_images=10000)
        return make_config(
            task=task, steps=42500, evaluate_every=8500, backbone=model, schedule=make_saturated_schedule(), **common
        )
    task, small = call(Adversarial, attacked_images=256), model.replace(width=0.5, feature_dim=128)
    return make_config(
        task=task, steps=1000, evaluate_every=500, backbone=small, schedule=make_saturated_schedule(1000), **common
    )
