"""Chapter 3: SphereNets, in which every layer computes angles."""

from typing import Any

from ..angular import Cosine, Sigmoid
from ..config import Call, call
from ..data import CIFAR10, CIFAR100, TinyImageNet
from ..energy import Orthonormality
from ..models import cnn9, cnn18, resnet32, sphere_resnet18
from ..objectives import Softmax, WSoftmax
from ..operators import Operator
from ..operators.magnitudes import Sphere
from ..training import Config, Selection, replace
from .recipe_book import (
    CENTERED,
    CROP_FLIP_BOTH,
    MIRROR,
    Size,
    decay_at,
    make_adam,
    make_config,
    make_imagenet,
    make_smoke,
    recipe,
    shrink_depth,
)

SPHERE = call(Operator, magnitude=call(Sphere), angular=call(Cosine))
SIGMOID = call(Operator, magnitude=call(Sphere), angular=call(Sigmoid, k=0.3))
LEARNED = call(Operator, magnitude=call(Sphere), angular=call(Sigmoid, k=0.5, learnable="filter"))
ORTHONORMAL = call(Orthonormality, hidden=1e-4)  # 2e-4·½‖WᵀW − I‖² in the authors' code


@recipe("spherenet-cifar10", tables="3.1, 3.2", data="CIFAR10")
def spherenet_cifar10(size: Size) -> Config:
    """SphereNet: cosine SphereConv in CNN-9 with the cosine W-Softmax.

    Liu (2020, 3.4.1, 3.4.2): Adam at 0.001, divided by 10 after 34,000 and 54,000 of 64,000 steps, batch 128, CNN-9 of table
    B.1 with batch normalization, CIFAR-10 with mirrored images only, no weight decay, ‖WᵀW − I‖² instead. Its weight, 1e-4 in
    effect, and (x − 127.5)/128 are those of the authors' code. Other operators and losses:
    ``backbone.operator.angular=Sigmoid backbone.operator.angular.k=0.3``, ``head=GASoftmax``; the convolution, with the weight decay of
    that code, is ``backbone.operator=none energy=none optimizer.weight_decay=5e-4 head=Softmax``; ``backbone=resnet32
    backbone.table=B.2`` is the last column of table 3.2.
    """
    return _make_spherenet_config(size, call(CIFAR10), call(cnn9, table="B.1", operator=SPHERE), call(WSoftmax), MIRROR)


@recipe("spherenet-deep-cifar10", tables="3.3", data="CIFAR10")
def spherenet_deep_cifar10(size: Size) -> Config:
    """SphereNet without ReLU: cosine SphereConv in CNN-18 with the plain softmax loss.

    Liu (2020, 3.4.2, table 3.3): CNN-18 of table B.1 without nonlinearities, otherwise as spherenet-cifar10.
    ``backbone=cnn69 backbone.table=B.1`` is the deepest network of figure 3.3(d).
    """
    model = call(cnn18, table="B.1", activation="none", operator=SPHERE)
    return _make_spherenet_config(size, call(CIFAR10), model, call(Softmax), MIRROR)


@recipe("spherenet-learned-cifar10", tables="3.4.3, fig. 3.4", data="CIFAR10")
def spherenet_learned_cifar10(size: Size) -> Config:
    """SphereNet with sigmoid SphereConv that learns one curvature k per filter, with the cosine W-Softmax.

    Liu (2020, 3.4.3): k starts at 0.5, otherwise as spherenet-cifar10. ``backbone.operator.angular.learnable=layer`` learns one
    k per layer.
    """
    return _make_spherenet_config(
        size, call(CIFAR10), call(cnn9, table="B.1", operator=LEARNED), call(WSoftmax), MIRROR
    )


@recipe("spherenorm-cifar10", tables="fig. 3.5", data="CIFAR10")
def spherenorm_cifar10(size: Size) -> Config:
    """SphereNorm instead of BatchNorm with batches of 4 samples and the softmax loss.

    Liu (2020, 3.4.4): CNN-9 of table B.1 with the cosine as SphereNorm, otherwise as spherenet-cifar10. The figure's batch
    sizes are settings (``batch_size=8``), as are ``backbone.norm=batch``, ``sphere_batch`` and ``sphere_rescaled``, and
    ``energy.hidden=0`` without the orthogonal constraint.
    """
    model = call(cnn9, table="B.1", norm="sphere")
    return replace(_make_spherenet_config(size, call(CIFAR10), model, call(Softmax), MIRROR), batch_size=4)


@recipe("spherenet-cifar100", tables="3.4", data="CIFAR100 (laptop: Tiny-ImageNet)")
def spherenet_cifar100(size: Size) -> Config:
    """SphereResNet-32 (S-SW): sigmoid SphereConv and sigmoid W-Softmax, k = 0.3, with crops and both flips.

    Liu (2020, 3.4.5, table B.2): filters 96/192/384, otherwise as spherenet-cifar10. The other rows: L-LW is
    ``backbone.operator.angular=Linear head.angular=Linear``, C-CW the same with ``Cosine``, S-G ``head=GASoftmax head.m=4``;
    ``data=CIFAR10`` is the other column. The laptop size uses 100 classes of Tiny-ImageNet at 32×32.
    """
    model = call(resnet32, table="C.1", operator=SIGMOID)  # the filters of B.2's second column
    return _make_spherenet_config(
        size, call(CIFAR100), model, call(WSoftmax, angular=call(Sigmoid, k=0.3)), CROP_FLIP_BOTH
    )


@recipe("spherenet-imagenet", tables="fig. 3.6", data="ImageNet (laptop: Tiny-ImageNet)")
def spherenet_imagenet(size: Size) -> Config:
    """SphereResNet-18 v2 on ImageNet: cosine SphereConv everywhere but in the shortcuts, with the softmax loss.

    Liu (2020, 3.4.1, 3.4.6, B.2): SGD with momentum 0.9 at 0.1, divided by 10 after 200,000 and 375,000 of 550,000 steps, batch
    40, pictures of 256×256 cut to 224×224. v1 is ``backbone.version=1 head=WSoftmax``; the baseline with the same filters is
    ``backbone.operator=none energy=none optimizer.weight_decay=5e-4``. (x − 127.5)/128 is that of the other experiments. The
    laptop size uses 100 classes of Tiny-ImageNet at 32×32.
    """
    model = call(sphere_resnet18, operator=SPHERE)
    if size == "paper":
        return make_imagenet(550000, 40, (200000, 375000), 0.0, backbone=model, energy=ORTHONORMAL)
    return _make_spherenet_config(size, call(CIFAR100), model, call(Softmax), CROP_FLIP_BOTH)


def _make_spherenet_config(size: Size, data: Call, model: Call, head: Call, augment: Call) -> Config:
    common: dict[str, Any] = {"head": head, "energy": ORTHONORMAL, "normalize": CENTERED}
    if size == "paper":
        schedule = decay_at(34000, 54000)
        timing = {"steps": 64000, "evaluate_every": 2000, "optimizer": make_adam(1e-3), "schedule": schedule}
        return make_config(**timing, data=data, augment=augment, backbone=model, **common)
    if size == "smoke":
        small = {"width": 0.1, "feature_dim": 16} if model.target in (cnn9, cnn18) else {"width": 0.05}
        return make_smoke(backbone=shrink_depth(model).replace(**small), optimizer=make_adam(1e-3), **common)
    if data.target is CIFAR100:
        common |= {"size": 32, "samples": Selection(classes=100)}
        data = call(TinyImageNet)
    timing = {"steps": 1200, "evaluate_every": 300, "optimizer": make_adam(2e-3), "schedule": decay_at(800, 1050)}
    return make_config(**timing, data=data, augment=augment, backbone=model.replace(width=0.25), **common)
