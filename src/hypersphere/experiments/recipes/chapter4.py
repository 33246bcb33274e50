"""Chapter 4: decoupled networks, magnitude times angle, and their robustness."""

from ...training.config import Config, Data, Energy, Head, Model, Operator, Optimizer
from ...training.protocols import Attack
from .base import Size, recipe, smoke

TANH = Operator("Tanh", "Cosine", learn=True, project_every=1)
ORTHOGONAL = Energy("orthogonality", hidden=1e-5)


@recipe("dcnet-cifar10", tables="4.5 (4.3, 4.4)", data="CIFAR10")
def dcnet_cifar10(size: Size) -> Config:
    """Decoupled network: TanhConv with a learned radius and weight projection.

    The text (4.6, C.1, C.2): ResNet-32 of table C.1, Adam at 0.001, batch 128, W-Softmax for table 4.5, weight projection with s = 1, the
    orthogonal constraint, no weight decay, ρ learned from 1. The rate falls "when the error plateaus"; the steps are those of chapter 3,
    whose protocol the text follows. How often weights are projected is not said: after every step. The text flips vertically as well.
    """
    head = Head("WSoftmax")
    if size == "smoke":
        model = Model("cnn9", table="C.1", width=0.06, feature_dim=16, operator=TANH)
        return smoke(model=model, head=head, energy=ORTHOGONAL, optimizer=Optimizer("adam", lr=1e-3, weight_decay=0.0))
    data = Data("CIFAR10", augment="crop_flip")
    if size == "paper":
        optimizer = Optimizer("adam", lr=1e-3, weight_decay=0.0, milestones=(34000, 54000))
        model = Model("resnet32", table="C.1", operator=TANH)
        return Config(
            steps=64000, evaluate_every=2000, data=data, model=model, head=head, energy=ORTHOGONAL, optimizer=optimizer
        )
    optimizer = Optimizer("adam", lr=2e-3, weight_decay=0.0, milestones=(800, 1050))
    model = Model("cnn9", table="C.1", width=0.25, feature_dim=128, operator=TANH)
    return Config(
        steps=1200, evaluate_every=300, data=data, model=model, head=head, energy=ORTHOGONAL, optimizer=optimizer
    )


@recipe("adversarial-cifar10", tables="4.7", data="CIFAR10")
def adversarial_cifar10(size: Size) -> Config:
    """Training against FGSM: a network of SphereConv, measured under FGSM, BIM and PGD.

    The text (4.6.2, C.1.2): CNN-9 of table C.1 for attacks, no batch normalization, Adam, FGSM with ε = 8/255 in training, BIM with τ = 2
    and N = 20, standard gradients. Rate and batch are those of the other experiments (0.001, 128); its steps are not said.
    ``attack.weight=0`` is natural training, ``model.operator.magnitude=none`` the baseline, and ``Ball`` or ``Tanh`` the other columns.
    """
    operator = Operator("Sphere", "Cosine")
    model = Model("cnn9", table="C.1 adversarial", norm="none", operator=operator)
    optimizer = Optimizer("adam", lr=1e-3, weight_decay=0.0, milestones=(34000, 54000))
    data = Data("CIFAR10", augment="crop_flip", normalize="unit")
    if size == "paper":
        attack = Attack(images=10000)
        return Config(
            task="adversarial",
            steps=64000,
            evaluate_every=8000,
            data=data,
            model=model,
            optimizer=optimizer,
            attack=attack,
        )
    if size == "laptop":
        model = Model("cnn9", table="C.1 adversarial", width=0.5, feature_dim=128, norm="none", operator=operator)
        optimizer = Optimizer("adam", lr=1e-3, weight_decay=0.0, milestones=(700, 900))
        attack = Attack(images=256)
        return Config(
            task="adversarial",
            steps=1000,
            evaluate_every=500,
            data=data,
            model=model,
            optimizer=optimizer,
            attack=attack,
        )
    model = Model("cnn9", table="C.1 adversarial", width=0.1, feature_dim=16, norm="none", operator=operator)
    digits = Data("Digits", batch_size=64, normalize="unit")
    return smoke(
        task="adversarial", data=digits, model=model, optimizer=optimizer, attack=Attack(iterations=2, images=64)
    )
