"""Chapter 5: minimum hyperspherical energy, on networks, imbalanced classes, faces, and a GAN."""

from typing import Any

from ..config import Call, call
from ..data import CIFAR10, CIFAR100, MNIST, ImbalancedMultiple, ImbalancedSingle, TinyImageNet
from ..energy import MHE
from ..models import Players, cnn6, cnn9, resnet18, resnet32, sphereface20
from ..objectives import AMSoftmax
from ..training import GAN, Config, ConstantRate, Selection, replace
from .chapter2 import SPHEREFACE, make_casia, make_open_set, sphereface_casia, sphereface_lfw
from .chapter3 import SPHERE
from .recipe_book import (
    CENTERED,
    CROP_FLIP,
    Size,
    decay_at,
    make_adam,
    make_config,
    make_imagenet,
    make_saturated_schedule,
    make_sgd,
    make_smoke,
    recipe,
    shrink_depth,
)

# λ_h = 1 in half space and 10 in full space (the default follows the space), λ_o = 1 in full space over all classes, s = 2 (D.1).
HALF_SPACE = call(MHE, output=1.0, s=2.0, half_space=True, data_dependent=False)
# λ_M·MHE over the classes in a batch (5.3.6), without a term for hidden layers.
SPHEREFACE_PLUS = call(MHE, hidden=0.0, output=1.0, s=2.0)


@recipe("mhe-cifar10", tables="5.1", data="CIFAR10")
def mhe_cifar10(size: Size) -> Config:
    """Half-space MHE on the hidden layers of CNN-9, full-space MHE on its classes.

    Liu (2020, 5.5.1, D.1): batch 128, SGD with momentum 0.9 at 0.1, divided by 10 after 20,000, 30,000 and 37,500 of 42,500
    steps, weight decay 1e-4, CNN-9 of table D.1, 4-pixel padding, crop and flip, λ_h = 1 (10 in full space:
    ``energy.half_space=false``), λ_o = 1, s = 2; (x − 127.5)/128 is that of the authors' code. ``data=CIFAR100`` is the other half
    of table 5.1 and, with ``backbone.width`` of 0.25 to 4 or ``backbone=cnn6`` and ``cnn15``, tables 5.2 and 5.3;
    ``energy.output=0`` and ``energy.hidden=0`` are table 5.4.
    """
    return make_regularized(size, call(CIFAR10), call(cnn9, table="D.1"), HALF_SPACE)


@recipe("mhe-resnet-cifar100", tables="5.5, 6.6", data="CIFAR100 (laptop: Tiny-ImageNet)")
def mhe_resnet_cifar100(size: Size) -> Config:
    """Half-space MHE on ResNet-32.

    Liu (2020, 5.5.1, D.1): ResNet-32 of table D.2, otherwise as mhe-cifar10. ``energy=CoMHE energy.data_dependent=false`` is table
    6.6, ``data=CIFAR10`` the other column. The laptop size uses 100 classes of Tiny-ImageNet at 32×32.
    """
    return make_regularized(size, call(CIFAR100), call(resnet32, table="D.2"), HALF_SPACE)


@recipe("mhe-imagenet", tables="5.6", data="ImageNet (laptop: Tiny-ImageNet)")
def mhe_imagenet(size: Size) -> Config:
    """Half-space MHE on ResNet-18 for ImageNet.

    Liu (2020, 5.5.1, D.1): batch 64, SGD with momentum 0.9 at 0.1, divided by 10 after 150,000, 300,000 and 400,000 of 500,000
    steps, weight decay 1e-4, pictures as in B.2. ``backbone=resnet34`` is the other column, ``energy=Orthonormality
    energy.hidden=1e-5`` another row. The laptop size uses 100 classes of Tiny-ImageNet at 32×32.
    """
    if size == "paper":
        return make_imagenet(500000, 64, (150000, 300000, 400000), 1e-4, backbone=call(resnet18), energy=HALF_SPACE)
    return make_regularized(size, call(CIFAR100), call(resnet18), HALF_SPACE)


@recipe("mhe-spherenet-cifar10", tables="D.3", data="CIFAR10")
def mhe_spherenet_cifar10(size: Size) -> Config:
    """Half-space MHE on a SphereNet: cosine SphereConv in CNN-9.

    Liu (2020, D.5): CNN-9 of table D.1, the setting of mhe-cifar10 without weight decay, which has no meaning for SphereConv.
    ``energy=Orthonormality energy.hidden=1e-5`` and ``energy=none`` are the baselines, ``energy.distance=angular`` A-MHE.
    """
    config = make_regularized(size, call(CIFAR10), call(cnn9, table="D.1", operator=SPHERE), HALF_SPACE)
    return replace(config, {"optimizer.weight_decay": 0.0})


def make_regularized(size: Size, data: Call, model: Call, energy: Call) -> Config:
    """Return the config of D.1 for CIFAR, which chapter 6 uses as well."""
    if size == "smoke":
        small = {"width": 0.06, "feature_dim": 16} if model.target is cnn9 else {"width": 0.05}
        return make_smoke(backbone=shrink_depth(model).replace(**small), energy=energy, normalize=CENTERED)
    common: dict[str, Any] = {
        "augment": CROP_FLIP,
        "energy": energy,
        "optimizer": make_sgd(0.1, 1e-4),
        "normalize": CENTERED,
    }
    if size == "paper":
        return make_config(
            steps=42500, evaluate_every=2500, data=data, backbone=model, schedule=make_saturated_schedule(), **common
        )
    if data.target is CIFAR100:
        common |= {"size": 32, "samples": Selection(classes=100)}
        data = call(TinyImageNet)
    small = {"width": 0.25, "feature_dim": 64} if model.target is cnn9 else {"width": 0.25}
    timing = {"steps": 1200, "evaluate_every": 300, "schedule": make_saturated_schedule(1200)}
    return make_config(data=data, backbone=model.replace(**small), **timing, **common)


@recipe("imbalance-cifar10", tables="5.7", data="CIFAR10")
def imbalance_cifar10(size: Size) -> Config:
    """MHE with imbalanced classes: class c keeps (c + 1)/10 of its images.

    Liu (2020, 5.5.1, D.1): CNN-9 and the setting of mhe-cifar10 on 27,500 images. ``samples.imbalance=ImbalancedSingle`` is
    the other setting, 45,500 images of which class 0 has a tenth of the others'; the whole test set is measured.
    """
    return replace(mhe_cifar10(size), samples=Selection(imbalance=call(ImbalancedMultiple)))


@recipe("imbalance-cifar100", tables="D.6", data="CIFAR100 (laptop: Tiny-ImageNet)")
def imbalance_cifar100(size: Size) -> Config:
    """MHE on CIFAR-100 with ten classes that have a tenth of the images of the others.

    Liu (2020, D.8): classes 0 to 9, otherwise as mhe-cifar10. ``samples.imbalance=ImbalancedMultiple`` is the other setting, in
    which class c keeps 5·(c + 1) images. The laptop size uses 100 classes of Tiny-ImageNet at 32×32.
    """
    config = make_regularized(size, call(CIFAR100), call(cnn9, table="D.1"), HALF_SPACE)
    return config.replace({"samples.imbalance": call(ImbalancedSingle, classes=tuple(range(10)), keep=0.1)})


@recipe("imbalance-mnist", tables="fig. 5.4, D.4", data="MNIST")
def imbalance_mnist(size: Size) -> Config:
    """MHE of the ten classes on MNIST with 100 zeros, features of two dimensions.

    Liu (2020, 5.5.1, D.8): a CNN of six layers; the text says nothing else. Here it is CNN-6 of table D.1 with the optimizer and
    batch size of mhe-cifar10 and the schedule of 2.2.7. Gradients are clipped at 1, because the energy of ten neurons in the
    plane is steep.
    """
    model = call(cnn6, table="D.1", feature_dim=2)
    common: dict[str, Any] = {"samples": Selection(imbalance=call(ImbalancedSingle, keep=100)), "clip": 1.0}
    common |= {"energy": call(MHE, hidden=0.0, output=1.0, data_dependent=False), "normalize": CENTERED}
    if size == "smoke":
        return make_smoke(backbone=model.replace(width=0.06), optimizer=make_sgd(0.01, 1e-4), **common)
    common |= {"data": call(MNIST), "optimizer": make_sgd(0.1, 1e-4)}
    if size == "paper":
        return make_config(steps=18000, evaluate_every=1000, backbone=model, schedule=decay_at(12000, 15000), **common)
    return make_config(
        steps=1500, evaluate_every=500, backbone=model.replace(width=0.25), schedule=decay_at(1000, 1300), **common
    )


@recipe("sphereface-plus-omniglot", tables="5.8 (stand-in)", data="Omniglot")
def sphereface_plus_omniglot(size: Size) -> Config:
    """SphereFace+: A-Softmax with the energy of the classes (eq. 5.8), measured on characters that are not trained on.

    Liu (2020, 5.5.2, D.1) trains SphereFace first and continues with the energy of the classes in a batch, in full space with
    s = 2, on CASIA-WebFace. The text does not state λ_M; it is 1 here, from the start of training. Data as in
    sphereface-omniglot.
    """
    return replace(make_open_set(size, SPHEREFACE), energy=SPHEREFACE_PLUS)


@recipe("sphereface-plus-lfw", tables="5.8, 5.9", data="LFW")
def sphereface_plus_lfw(size: Size) -> Config:
    """SphereFace+: A-Softmax with the energy of the classes (eq. 5.8), for face verification on LFW.

    Data and schedule as in sphereface-lfw, energy as in sphereface-plus-omniglot.
    """
    return replace(sphereface_lfw(size), energy=SPHEREFACE_PLUS)


@recipe("sphereface-plus-casia", tables="5.8, 5.9, 5.10, D.7, D.8", data="CASIA-WebFace (laptop: Omniglot)")
def sphereface_plus_casia(size: Size) -> Config:
    """SphereFace+ (eq. 5.8): the second stage, which continues a SphereFace network with the energy of its classes.

    Liu (2020, 5.5.2, D.1): train sphereface-casia first into ``runs/sphereface-casia``; this recipe starts from its weights with λ
    at its floor. The text does not state the learning rate and the length of the second stage. Here they are a tenth of the first
    learning rate, at which the first stage ends, and 8,000 steps. Evaluate as sphereface-casia. ``backbone=sphereface20`` in both
    stages is table 5.8, ``head.m=1`` to ``3`` D.7, ``data.folder=…`` another dataset (D.8).
    """
    config = replace(sphereface_casia(size), {"head.annealing.start": 5.0}, energy=SPHEREFACE_PLUS)
    if size != "paper":
        return config
    return replace(
        config, {"optimizer.lr": 0.01}, steps=8000, schedule=call(ConstantRate), weights="runs/sphereface-casia"
    )


@recipe("amsoftmax-mhe-casia", tables="D.6 (section)", data="CASIA-WebFace (laptop: Omniglot)")
def amsoftmax_mhe_casia(size: Size) -> Config:
    """AM-Softmax with the energy of its classes, SphereFace-20.

    Liu (2020, D.6): s and m "follow the best setting" of the AM-Softmax paper, 30 and 0.35; otherwise as sphereface-casia.
    ``energy=none`` is the baseline.
    """
    return replace(make_casia(size, call(sphereface20), call(AMSoftmax, scale=30.0, m=0.35)), energy=SPHEREFACE_PLUS)


@recipe("gan-mhe-cifar10", tables="D.4", data="CIFAR10 (laptop: MNIST)")
def gan_mhe_cifar10(size: Size) -> Config:
    """A GAN whose discriminator has half-space MHE and spectral norm.

    Liu (2020, D.7, table D.5): the standard objective, z of dimension 128, otherwise the setting of the spectral normalization
    paper, which the text does not state in numbers: Adam at 2e-4 with β = (0.5, 0.9), batch 64, 100,000 steps of the generator, five of the
    discriminator before each. The weight of the energy is that of the authors' notes: 1e-7 with spectral norm, and 1e-6 without
    (``backbone.spectral_norm=false energy.hidden=1e-6``). The Inception score needs the Inception network; here the Fréchet
    distance of pixel components is measured.
    """
    energy = call(MHE, hidden=1e-7, output=0.0)
    optimizer = make_adam(2e-4, betas=(0.5, 0.9))
    common = {"monitor": "-frechet", "normalize": "unit", "energy": energy, "schedule": call(ConstantRate)}
    if size == "paper":
        timing = {"steps": 600000, "evaluate_every": 10000, "checkpoint_every": 5000, "batch_size": 64}
        model = call(Players, spectral_norm=True)
        task = call(GAN, turns=5, samples=10000)
        return make_config(task=task, data=call(CIFAR10), backbone=model, optimizer=optimizer, **timing, **common)
    if size == "laptop":
        common |= {"size": 32, "normalize": "unit", "optimizer": make_adam(5e-4, betas=(0.5, 0.9))}
        model = call(Players, width=0.25, spectral_norm=True)
        return make_config(task=call(GAN), steps=2000, batch_size=64, data=call(MNIST), backbone=model, **common)
    task, model = call(GAN, samples=100, components=16), call(Players, width=0.06, latent_dim=16, spectral_norm=True)
    return make_smoke(task=task, backbone=model, optimizer=optimizer, **common)
