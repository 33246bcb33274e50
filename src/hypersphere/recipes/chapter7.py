"""Chapter 7: orthogonal over-parameterized training of perceptrons, images, episodes, graphs and clouds."""

from collections.abc import Mapping
from typing import Any

from ..config import Call, call
from ..data import CIFAR10, CIFAR100, MNIST, CropFlip, Omniglot, TinyImageNet
from ..models import cnn4, cnn6, cnn10, mlp, resnet20
from ..orthogonal import overparameterize
from ..training import Config, ConstantRate, FewShotRecognition, replace
from .chapter6 import make_gcn, make_pointnet
from .recipe_book import (
    CENTERED,
    CROP_FLIP,
    Size,
    make_adam,
    make_config,
    make_imagenet,
    make_saturated_schedule,
    make_sgd,
    make_smoke,
    recipe,
)

CAYLEY = call(overparameterize, method="cayley")
GRAM_SCHMIDT = call(overparameterize, method="gram_schmidt")


@recipe("opt-mlp-mnist", tables="7.3", data="MNIST")
def opt_mlp_mnist(size: Size) -> Config:
    """OPT (Cayley) of a three-layer perceptron.

    Liu (2020, 7.5.2, F.3): 784-256-256-10, Xavier initialization (``backbone.init=normal`` is the other column), SGD with
    momentum 0.9 at 0.01, batch 100, 100 epochs, weight decay 5e-4. ``orthogonal.method=gram_schmidt`` and others are the rows,
    ``orthogonal=none`` the baseline, which starts from the same weights.
    """
    common: dict[str, Any] = {"orthogonal": CAYLEY, "optimizer": make_sgd(0.01), "schedule": call(ConstantRate)}
    if size == "smoke":
        return make_smoke(backbone=call(mlp, width=0.25, init="xavier"), **common)
    common |= {"batch_size": 100, "data": call(MNIST), "normalize": "unit"}
    steps = 60000 if size == "paper" else 3000
    return make_config(steps=steps, evaluate_every=steps // 20, backbone=call(mlp, init="xavier"), **common)


@recipe("opt-cnn-cifar100", tables="7.1, 7.4", data="CIFAR100 (laptop: CIFAR10)")
def opt_cnn_cifar100(size: Size) -> Config:
    """OPT (Gram–Schmidt) of CNN-6.

    Liu (2020, 7.5.3, F.3): CNN-6 of table F.1 with batch normalization, batch 128, SGD with momentum 0.9 at 0.1, divided by 10
    "when the performance is saturated" (here at the steps of D.1), weight decay 5e-4, He initialization, R from N(0, 1).
    The augmentation is not stated: crop and flip as in the chapters before; (x − 127.5)/128 is that of the authors' code.
    ``backbone.norm=none`` is table 7.5, ``orthogonal.normalize=true`` 7.7, ``orthogonal.refine.half_space=true`` 7.6,
    ``orthogonal.mean=0.01`` 7.2, ``backbone=cnn9`` the other column of 7.1 and 7.4, ``orthogonal.train_neurons=true`` and
    ``orthogonal.method=unconstrained`` the rows of 7.1. Energies are logged in half space with s = 1, as in figures 7.3 and F.2.
    """
    parts = {"orthogonal": GRAM_SCHMIDT, "energy_s": 1.0, "energy_half_space": True}
    small = {"width": 0.1, "feature_dim": 16}
    return _make_cifar_config(size, call(cnn6, table="F.1"), small, width=0.25, steps=1000, **parts)


def _make_cifar_config(
    size: Size, model: Call, small: Mapping[str, Any], width: float, steps: int, **parts: Any
) -> Config:
    """Return the config of 7.5.3 for CIFAR. ``small`` narrows the smoke size, ``width`` and ``steps`` are of the laptop size."""
    parts["normalize"] = CENTERED
    if size == "smoke":
        return make_smoke(backbone=model.replace(**small), **parts)
    parts |= {"augment": CROP_FLIP, "optimizer": make_sgd(0.1)}
    if size == "paper":
        parts |= {"data": call(CIFAR100), "backbone": model, "schedule": make_saturated_schedule()}
        return make_config(steps=42500, evaluate_every=2500, **parts)
    parts |= {"data": call(CIFAR10), "backbone": model.replace(width=width), "schedule": make_saturated_schedule(steps)}
    return make_config(steps=steps, evaluate_every=steps // 4, **parts)


@recipe("opt-blocks-cifar100", tables="F.4, F.5", data="CIFAR100 (laptop: CIFAR10)")
def opt_blocks_cifar100(size: Size) -> Config:
    """PE-OPT (Cayley) of CNN-6: R of four blocks along the channels, one matrix for all of them.

    Liu (2020, F.5): otherwise as opt-cnn-cifar100. ``orthogonal.blocks=2`` to ``64`` are the rows of table F.4,
    ``orthogonal.share_blocks=false`` is F.5, other methods are the columns. The three channels of the first layer cannot be
    cut: its R is whole. ``orthogonal=prepare_neurons orthogonal.freeze=true`` is the baseline with fixed neurons.
    """
    return opt_cnn_cifar100(size).replace(orthogonal=CAYLEY.replace(blocks=4, share_blocks=True))


@recipe("opt-progressive-cifar10", tables="F.8 (section)", data="CIFAR10")
def opt_progressive_cifar10(size: Size) -> Config:
    """Progressive training: the merged network of opt-cnn-cifar100 gets a new R on few images of other classes.

    Liu (2020, F.8) describes it without an experiment. Train opt-cnn-cifar100 first into ``runs/opt-cnn-cifar100``; its final
    weights, the products of R and the neurons, are the fixed neurons here. The new R starts from the identity, so training
    continues where the first stage ended. 500 images per class, a tenth of the learning rate, otherwise as opt-cnn-cifar100.
    """
    rotation = GRAM_SCHMIDT.replace(start="identity")
    config = opt_cnn_cifar100(size).replace({"optimizer.lr": 0.01}, orthogonal=rotation)
    if size == "smoke":
        return config
    config = config.replace({"samples.per_class": 500}, data=call(CIFAR10))
    return config.replace(weights="runs/opt-cnn-cifar100") if size == "paper" else config


@recipe("opt-imagenet", tables="7.9", data="ImageNet (laptop: CIFAR10)")
def opt_imagenet(size: Size) -> Config:
    """OPT (Cayley) of the plain CNN-10 on ImageNet.

    Liu (2020, 7.5.3, F.3): CNN-10 of table F.1, batch 128, SGD with momentum 0.9 at 0.1, weight decay 5e-4, 700,000 steps. The
    learning rate is divided "when the performance is saturated", here at the same shares of the run as in D.1. Pictures as in B.2.
    """
    if size == "smoke":
        return make_smoke(
            backbone=call(cnn10, width=0.1, feature_dim=16, input_size=32),
            size=32,
            orthogonal=CAYLEY,
            normalize=CENTERED,
        )
    if size == "paper":
        drops = (330000, 495000, 618000)
        return make_imagenet(700000, 128, drops, 5e-4, backbone=call(cnn10), orthogonal=CAYLEY)
    return opt_cnn_cifar100(size).replace(
        backbone=call(cnn10, width=0.25),
        size=64,
        orthogonal=CAYLEY,
        steps=400,
        evaluate_every=100,
        schedule=make_saturated_schedule(400),
    )


@recipe("opt-resnet-cifar100", tables="7.8", data="CIFAR100 (laptop: CIFAR10)")
def opt_resnet_cifar100(size: Size) -> Config:
    """OPT (Cayley) of ResNet-20.

    Liu (2020, 7.5.3, F.3): ResNet-20 of table F.2, otherwise as opt-cnn-cifar100. ``backbone=resnet32`` is the other column.
    """
    return _make_cifar_config(
        size, call(resnet20, table="F.2"), {"width": 0.25}, width=0.5, steps=800, orthogonal=CAYLEY
    )


@recipe("opt-gcn-cora", tables="7.11", data="Cora")
def opt_gcn_cora(size: Size) -> Config:
    """OPT (Cayley) of a two-layer graph network.

    Liu (2020, 7.5.4, F.3): the setting of the implementation it follows, which the text does not state in numbers: Adam at 0.01, 200
    steps, 16 hidden neurons, dropout 0.5, weight decay 5e-4 (on the first layer there, on both here). ``data.name=pubmed`` is
    the other column.
    """
    return replace(make_gcn(size), orthogonal=CAYLEY)


@recipe("opt-pointnet", tables="7.12", data="ModelNet40 (laptop: ModelNet10)")
def opt_pointnet(size: Size) -> Config:
    """OPT (Cayley) of PointNet without T-Net.

    Liu (2020, 7.5.5, F.3): 1024 points, batch 32, Adam at 0.001, multiplied by 0.7 every 200,000 steps, 250 epochs (76,750
    steps of 9,840 clouds, so the learning rate never falls; its source counts clouds, not steps), rotation about the vertical and
    jitter, dropout 0.3. The laptop's data are points on the surface of ModelNet10's voxels.
    """
    return replace(make_pointnet(size), orthogonal=CAYLEY)


@recipe("opt-few-shot", tables="7.10", data="Tiny-ImageNet for Mini-ImageNet")
def opt_few_shot(size: Size) -> Config:
    """OPT (Cayley) of CNN-4, pretrained on 64 classes and measured on episodes of 20 others.

    Liu (2020, 7.5.3, F.3): CNN-4 of table F.3 on Mini-ImageNet at 84×84, 200 epochs, Adam at 0.001, weight decay 5e-4, then
    5-way 5-shot episodes with a linear (baseline) or cosine (baseline++, c = 2) classifier. The batch size is not stated; it is 16, as in
    the code it follows. The data are the first 100 classes of Tiny-ImageNet in order, 64, 16 and 20 of them, a stand-in.
    Pretraining for baseline++ is ``head=SSoftmax head.scale=2``.
    """
    common: dict[str, Any] = {"orthogonal": CAYLEY, "optimizer": make_adam(1e-3, 5e-4), "schedule": call(ConstantRate)}
    if size == "smoke":
        task = call(
            FewShotRecognition,
            **{"ways": 3, "shots": 2, "queries": 5, "episodes": 10, "epochs": 2},
            **{"train_classes": 7, "validation_classes": 0, "test_classes": 3},
        )
        return make_smoke(task=task, size=16, backbone=call(cnn4, width=0.1), **common)
    common |= {"data": call(TinyImageNet), "augment": CROP_FLIP}
    if size == "paper":
        timing = {"steps": 400000, "evaluate_every": 20000, "batch_size": 16}
        return make_config(task=call(FewShotRecognition), size=84, backbone=call(cnn4), **timing, **common)
    task, model = call(FewShotRecognition, episodes=200), call(cnn4, width=0.5)
    return make_config(task=task, steps=1500, evaluate_every=500, size=32, backbone=model, **common)


@recipe("few-shot-omniglot", tables="7.10 (stand-in)", data="Omniglot")
def few_shot_omniglot(size: Size) -> Config:
    """CNN-4 on Omniglot's background characters, measured on 5-way 1-shot episodes of unseen ones.

    The network of table F.3 for 28×28 images; Liu (2020) has no experiment on this data. Optimizer as in opt-few-shot.
    """
    if size == "smoke":
        return replace(opt_few_shot(size), orthogonal=None)
    steps, width = (20000, 1.0) if size == "paper" else (1000, 0.5)
    task = call(FewShotRecognition, shots=1, validation_classes=100, episodes=200)
    crop = call(CropFlip, pad=2, horizontal=False)
    common: dict[str, Any] = {
        "size": 28,
        "augment": crop,
        "optimizer": make_adam(1e-3, 5e-4),
        "schedule": call(ConstantRate),
    }
    model = call(cnn4, width=width)
    return make_config(task=task, steps=steps, evaluate_every=steps // 4, data=call(Omniglot), backbone=model, **common)
