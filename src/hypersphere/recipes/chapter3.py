"""Chapter 3: SphereNets, whose every layer is an angle."""

from typing import Any

from ..angular import Cosine
from ..config import Call, call
from ..data import CIFAR10, CIFAR100, TinyImageNet
from ..energy import Orthonormality
from ..models import cnn9, cnn18
from ..objectives import Softmax, WSoftmax
from ..operators import Operator
from ..operators.magnitudes import Sphere
from ..training import Config, Selection
from .recipe_book import CROP_FLIP_BOTH, MIRROR, Size, adam, falls, make, recipe, smoke

SPHERE = call(Operator, magnitude=call(Sphere), angular=call(Cosine))
ORTHONORMAL = call(Orthonormality, hidden=1e-5)


@recipe("spherenet-cifar10", tables="3.1, 3.2", data="CIFAR10")
def spherenet_cifar10(size: Size) -> Config:
    """SphereNet: cosine SphereConv in CNN-9 under the cosine W-Softmax.

    Liu (2020, 3.4.1, 3.4.2): Adam at 0.001, divided by 10 after 34,000 and 54,000 of 64,000 steps, batch 128, CNN-9 of table
    B.1 with batch normalization, CIFAR-10 with mirrored images only, no weight decay, ‖WᵀW − I‖² instead (its weight, 1e-5, is
    stated in D.1). Other operators and losses: ``backbone.operator.angular=Sigmoid backbone.operator.angular.k=0.3``,
    ``head=GASoftmax``; ``energy=none backbone.operator=none`` is the convolution.
    """
    return _spherenet(size, call(CIFAR10), call(cnn9, table="B.1", operator=SPHERE), call(WSoftmax), MIRROR)


@recipe("spherenet-deep-cifar10", tables="3.3", data="CIFAR10")
def spherenet_deep_cifar10(size: Size) -> Config:
    """SphereNet without ReLU: cosine SphereConv in CNN-18 under the plain softmax loss.

    Liu (2020, 3.4.2, table 3.3): CNN-18 of table B.1 without nonlinearities, otherwise as spherenet-cifar10.
    ``backbone=cnn69 backbone.table=B.1`` is the deepest network of figure 3.3(d).
    """
    model = call(cnn18, table="B.1", activation="none", operator=SPHERE)
    return _spherenet(size, call(CIFAR10), model, call(Softmax), MIRROR)


@recipe("spherenet-cifar100", tables="3.4", data="CIFAR100 (laptop: Tiny-ImageNet)")
def spherenet_cifar100(size: Size) -> Config:
    """SphereNet on CIFAR-100, with crops and both flips.

    Liu (2020, 3.4.5): the augmentation of the image classification experiments, otherwise as spherenet-cifar10. The laptop's
    data are 100 classes of Tiny-ImageNet at 32×32, a stand-in.
    """
    model = call(cnn9, table="B.1", operator=SPHERE)
    return _spherenet(size, call(CIFAR100), model, call(WSoftmax), CROP_FLIP_BOTH)


def _spherenet(size: Size, data: Call, model: Call, head: Call, augment: Call) -> Config:
    common: dict[str, Any] = {"head": head, "energy": ORTHONORMAL}
    if size == "paper":
        schedule = falls(34000, 54000)
        timing = {"steps": 64000, "evaluate_every": 2000, "optimizer": adam(1e-3), "schedule": schedule}
        return make(**timing, data=data, augment=augment, backbone=model, **common)
    if size == "smoke":
        return smoke(backbone=model.replace(width=0.1, feature_dim=16), optimizer=adam(1e-3), **common)
    if data.target is CIFAR100:
        common |= {"size": 32, "samples": Selection(classes=100)}
        data = call(TinyImageNet)
    timing = {"steps": 1200, "evaluate_every": 300, "optimizer": adam(2e-3), "schedule": falls(800, 1050)}
    return make(**timing, data=data, augment=augment, backbone=model.replace(width=0.25), **common)
