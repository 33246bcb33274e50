"""Knobs of single tasks: how it is attacked, how episodes are drawn, how two players take turns."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Attack:
    """Of the task ``adversarial``; the text's values (C.1.2): ε = 8, τ = 2 of 255 grey levels, N = 20."""

    epsilon: float = 8 / 255
    step: float = 2 / 255
    iterations: int = 20
    weight: float = 0.5
    """of the attacked images in the training loss; 0 is natural training"""
    images: int = 512
    """of the test set that are attacked at every evaluation"""


@dataclass(frozen=True)
class FewShot:
    """Of the task ``few_shot``: the sizes of episodes, and how classes are divided where a dataset has no division of its own."""

    ways: int = 5
    shots: int = 5
    queries: int = 15
    episodes: int = 600
    epochs: int = 100
    """of the classifiers trained on an episode's support (F.3)"""
    train_classes: int = 64
    """the first ones (Mini-ImageNet: 64, 16, 20)"""
    validation_classes: int = 16
    """the next ones, measured when ``data.validation`` is above 0"""
    test_classes: int = 20
    """those after them"""


@dataclass(frozen=True)
class Players:
    """Of the task ``gan``."""

    latent_dim: int = 128
    """of z (D.7)"""
    spectral_norm: bool = False
    turns: int = 1
    """steps of the discriminator before one of the generator"""
    samples: int = 1000
    """generated and real images compared at every evaluation"""
    components: int = 64
    """principal components of the pixels in which they are compared"""
