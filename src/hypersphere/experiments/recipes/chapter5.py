"""Chapter 5: minimum hyperspherical energy, on networks, imbalanced classes, faces, and a GAN."""

from ...training.config import Config, Data, Energy, Model, Optimizer, replace
from ...training.protocols import Players
from .base import Size, recipe, saturated, smoke
from .chapter2 import SPHEREFACE, open_set, sphereface_lfw

HALF_SPACE = Energy("MHE", output=1.0)


@recipe("mhe-cifar10", tables="5.1", data="CIFAR10")
def mhe_cifar10(size: Size) -> Config:
    """Half-space MHE on the hidden layers of CNN-9, full-space MHE on its classes.

    The text (5.5.1, D.1): batch 128, SGD with momentum 0.9 at 0.1, divided by 10 after 20,000, 30,000 and 37,500 of 42,500 steps, weight
    decay 1e-4, CNN-9 of table D.1, 4-pixel padding, crop and flip, λ_h = 1 (10 in full space), λ_o = 1, s = 2.
    """
    data = Data("CIFAR10", augment="crop_flip")
    if size == "paper":
        optimizer = Optimizer(lr=0.1, weight_decay=1e-4, milestones=(20000, 30000, 37500))
        model = Model("cnn9", table="D.1")
        return Config(steps=42500, evaluate_every=2500, data=data, model=model, energy=HALF_SPACE, optimizer=optimizer)
    if size == "laptop":
        optimizer = Optimizer(lr=0.1, weight_decay=1e-4, **saturated(1200))
        model = Model("cnn9", table="D.1", width=0.25, feature_dim=64)
        return Config(steps=1200, evaluate_every=300, data=data, model=model, energy=HALF_SPACE, optimizer=optimizer)
    return smoke(model=Model("cnn9", table="D.1", width=0.06, feature_dim=16), energy=HALF_SPACE)


@recipe("imbalance-cifar10", tables="5.7", data="CIFAR10")
def imbalance_cifar10(size: Size) -> Config:
    """MHE where classes are imbalanced: class c keeps (c + 1)/10 of its images.

    The text (5.5.1, D.1): CNN-9 and the setting of mhe-cifar10 on 27,500 images. ``data.imbalance=single`` is its other setting, 45,500
    images of which class 0 has a tenth of the others'; the whole test set is measured.
    """
    return replace(mhe_cifar10(size), data__imbalance="multiple")


@recipe("sphereface-plus-omniglot", tables="5.8 (stand-in)", data="Omniglot")
def sphereface_plus_omniglot(size: Size) -> Config:
    """SphereFace+: A-Softmax with the energy of the classes (eq. 5.8), measured on characters it has never seen.

    The text (5.5.2, D.1) trains SphereFace first and continues with the energy of the classes that a batch names, in full space with
    s = 2, on CASIA-WebFace; λ_M is not said and is 1 here, from the start of training. Data as in sphereface-omniglot.
    """
    return replace(open_set(size, SPHEREFACE), energy__classes=1.0)


@recipe("sphereface-plus-lfw", tables="5.8, 5.9", data="LFW")
def sphereface_plus_lfw(size: Size) -> Config:
    """SphereFace+: A-Softmax with the energy of the classes (eq. 5.8), for face verification on LFW.

    Data and schedule as in sphereface-lfw, energy as in sphereface-plus-omniglot.
    """
    return replace(sphereface_lfw(size), energy__classes=1.0)


@recipe("gan-mhe-cifar10", tables="D.4", data="CIFAR10 (laptop: MNIST)")
def gan_mhe_cifar10(size: Size) -> Config:
    """A GAN whose discriminator has half-space MHE and spectral norm.

    The text (D.7, table D.5): the standard objective, z of dimension 128, otherwise the setting of the spectral normalization paper, of
    which it states no number: Adam at 2e-4 with β = (0.5, 0.9), batch 64, 100,000 steps of the generator, five of the discriminator
    before each. Its Inception score needs the Inception network; here the Fréchet distance of pixel components is measured.
    """
    energy, adam = Energy("MHE"), Optimizer("adam", lr=2e-4, betas=(0.5, 0.9), weight_decay=0.0, schedule="constant")
    if size == "paper":
        data, players = (
            Data("CIFAR10", batch_size=64, normalize="unit"),
            Players(spectral_norm=True, turns=5, samples=10000),
        )
        return Config(
            task="gan",
            steps=600000,
            evaluate_every=10000,
            checkpoint_every=5000,
            monitor="-frechet",
            data=data,
            model=Model("discriminator"),
            energy=energy,
            optimizer=adam,
            players=players,
        )
    if size == "laptop":
        data, model = Data("MNIST", size=32, batch_size=64, normalize="unit"), Model("discriminator", width=0.25)
        adam, players = replace(adam, lr=5e-4), Players(spectral_norm=True)
        return Config(
            task="gan",
            steps=2000,
            evaluate_every=500,
            monitor="-frechet",
            data=data,
            model=model,
            energy=energy,
            optimizer=adam,
            players=players,
        )
    data, model = Data("Digits", batch_size=32, normalize="unit"), Model("discriminator", width=0.06)
    players = Players(latent_dim=16, spectral_norm=True, samples=100, components=16)
    return smoke(task="gan", monitor="-frechet", data=data, model=model, energy=energy, optimizer=adam, players=players)
