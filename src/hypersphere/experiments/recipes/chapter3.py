"""Chapter 3: SphereNets, whose every layer is an angle."""

from ...training.config import Config, Data, Energy, Head, Model, Operator, Optimizer
from .base import Size, recipe, smoke

SPHERE = Operator("Sphere", "Cosine")
ORTHONORMAL = Energy("orthonormality", hidden=1e-5)


@recipe("spherenet-cifar10", tables="3.1, 3.2", data="CIFAR10")
def spherenet_cifar10(size: Size) -> Config:
    """SphereNet: cosine SphereConv in CNN-9 under the cosine W-Softmax.

    The text (3.4.1, 3.4.2): Adam at 0.001, divided by 10 after 34,000 and 54,000 of 64,000 steps, batch 128, CNN-9 of table B.1 with batch
    normalization, CIFAR-10 with mirrored images only, no weight decay, ‖WᵀW − I‖² instead (its weight, 1e-5, is stated in D.1).
    Other operators and losses: ``model.operator.angular``, ``head.name``, ``head.angular``.
    """
    model, head = Model("cnn9", table="B.1", operator=SPHERE), Head("WSoftmax")
    data = Data("CIFAR10", augment="mirror")
    if size == "paper":
        optimizer = Optimizer("adam", lr=1e-3, weight_decay=0.0, milestones=(34000, 54000))
        return Config(
            steps=64000, evaluate_every=2000, data=data, model=model, head=head, energy=ORTHONORMAL, optimizer=optimizer
        )
    model = Model("cnn9", table="B.1", width=0.25, operator=SPHERE)
    if size == "laptop":
        optimizer = Optimizer("adam", lr=2e-3, weight_decay=0.0, milestones=(800, 1050))
        return Config(
            steps=1200, evaluate_every=300, data=data, model=model, head=head, energy=ORTHONORMAL, optimizer=optimizer
        )
    model = Model("cnn9", table="B.1", width=0.1, feature_dim=16, operator=SPHERE)
    return smoke(model=model, head=head, energy=ORTHONORMAL, optimizer=Optimizer("adam", lr=1e-3, weight_decay=0.0))
