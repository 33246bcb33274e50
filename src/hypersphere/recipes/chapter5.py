"""Chapter 5: minimum hyperspherical energy, on networks, imbalanced classes, faces, and a GAN."""

from ..config import call
from ..data import CIFAR10, MNIST, ImbalancedMultiple
from ..energy import MHE
from ..models import Players, cnn9
from ..training import GAN, Config, Selection, replace
from .chapter2 import SPHEREFACE, open_set, sphereface_lfw
from .recipe_book import CROP_FLIP, Size, adam, falls, make, recipe, saturated, sgd, smoke

# λ_h = 1 in half space, λ_o = 1 in full space over all classes, s = 2 (D.1).
HALF_SPACE = call(MHE, hidden=1.0, output=1.0, s=2.0, half_space=True, data_dependent=False)
# λ_M·MHE over the classes that a batch names (5.3.6); no term for hidden layers.
SPHEREFACE_PLUS = call(MHE, hidden=0.0, output=1.0, s=2.0)


@recipe("mhe-cifar10", tables="5.1", data="CIFAR10")
def mhe_cifar10(size: Size) -> Config:
    """Half-space MHE on the hidden layers of CNN-9, full-space MHE on its classes.

    Liu (2020, 5.5.1, D.1): batch 128, SGD with momentum 0.9 at 0.1, divided by 10 after 20,000, 30,000 and 37,500 of 42,500
    steps, weight decay 1e-4, CNN-9 of table D.1, 4-pixel padding, crop and flip, λ_h = 1 (10 in full space), λ_o = 1, s = 2.
    """
    common = {"data": call(CIFAR10), "augment": CROP_FLIP, "energy": HALF_SPACE, "optimizer": sgd(0.1, 1e-4)}
    if size == "paper":
        schedule = falls(20000, 30000, 37500)
        return make(steps=42500, evaluate_every=2500, backbone=call(cnn9, table="D.1"), schedule=schedule, **common)
    if size == "laptop":
        model = call(cnn9, table="D.1", width=0.25, feature_dim=64)
        return make(steps=1200, evaluate_every=300, backbone=model, schedule=saturated(1200), **common)
    return smoke(backbone=call(cnn9, table="D.1", width=0.06, feature_dim=16), energy=HALF_SPACE)


@recipe("imbalance-cifar10", tables="5.7", data="CIFAR10")
def imbalance_cifar10(size: Size) -> Config:
    """MHE where classes are imbalanced: class c keeps (c + 1)/10 of its images.

    Liu (2020, 5.5.1, D.1): CNN-9 and the setting of mhe-cifar10 on 27,500 images. ``samples.imbalance=ImbalancedSingle`` is
    the other setting, 45,500 images of which class 0 has a tenth of the others'; the whole test set is measured.
    """
    return replace(mhe_cifar10(size), samples=Selection(imbalance=call(ImbalancedMultiple)))


@recipe("sphereface-plus-omniglot", tables="5.8 (stand-in)", data="Omniglot")
def sphereface_plus_omniglot(size: Size) -> Config:
    """SphereFace+: A-Softmax with the energy of the classes (eq. 5.8), measured on characters it has never seen.

    Liu (2020, 5.5.2, D.1) trains SphereFace first and continues with the energy of the classes that a batch names, in full
    space with s = 2, on CASIA-WebFace; λ_M is not said and is 1 here, from the start of training. Data as in
    sphereface-omniglot.
    """
    return replace(open_set(size, SPHEREFACE), energy=SPHEREFACE_PLUS)


@recipe("sphereface-plus-lfw", tables="5.8, 5.9", data="LFW")
def sphereface_plus_lfw(size: Size) -> Config:
    """SphereFace+: A-Softmax with the energy of the classes (eq. 5.8), for face verification on LFW.

    Data and schedule as in sphereface-lfw, energy as in sphereface-plus-omniglot.
    """
    return replace(sphereface_lfw(size), energy=SPHEREFACE_PLUS)


@recipe("gan-mhe-cifar10", tables="D.4", data="CIFAR10 (laptop: MNIST)")
def gan_mhe_cifar10(size: Size) -> Config:
    """A GAN whose discriminator has half-space MHE and spectral norm.

    Liu (2020, D.7, table D.5): the standard objective, z of dimension 128, otherwise the setting of the spectral normalization
    paper, of which no number is stated: Adam at 2e-4 with β = (0.5, 0.9), batch 64, 100,000 steps of the generator, five of the
    discriminator before each. The weight of the energy is that of the authors' notes, 1e-6. The Inception score needs the
    Inception network; here the Fréchet distance of pixel components is measured.
    """
    energy = call(MHE, hidden=1e-6, output=0.0)
    rate, steady = adam(2e-4, betas=(0.5, 0.9)), falls()
    common = {"monitor": "-frechet", "normalize": "unit", "energy": energy, "schedule": steady}
    if size == "paper":
        timing = {"steps": 600000, "evaluate_every": 10000, "checkpoint_every": 5000, "batch_size": 64}
        model = call(Players, spectral_norm=True)
        task = call(GAN, turns=5, samples=10000)
        return make(task=task, data=call(CIFAR10), backbone=model, optimizer=rate, **timing, **common)
    if size == "laptop":
        common |= {"size": 32, "normalize": "unit", "optimizer": adam(5e-4, betas=(0.5, 0.9))}
        model = call(Players, width=0.25, spectral_norm=True)
        return make(task=call(GAN), steps=2000, batch_size=64, data=call(MNIST), backbone=model, **common)
    task, model = call(GAN, samples=100, components=16), call(Players, width=0.06, latent_dim=16, spectral_norm=True)
    return smoke(task=task, backbone=model, optimizer=rate, **common)
