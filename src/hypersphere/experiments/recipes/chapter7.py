"""Chapter 7: orthogonal over-parameterized training of perceptrons, images, episodes, graphs and clouds."""

from ...training.config import Config, Data, Model, Optimizer, Orthogonal, replace
from ...training.protocols import FewShot
from .base import DIGITS, Size, recipe, saturated, smoke
from .chapter6 import gcn_cora, pointnet_modelnet40

CAYLEY = Orthogonal("cayley")


@recipe("opt-mlp-mnist", tables="7.3", data="MNIST")
def opt_mlp_mnist(size: Size) -> Config:
    """OPT (Cayley) of a three-layer perceptron.

    The text (7.5.2, F.3): 784-256-256-10, Xavier initialisation (``model.init=normal`` is its other column), SGD with momentum 0.9 at 0.01,
    batch 100, 100 epochs, weight decay 5e-4. ``orthogonal.method=gram_schmidt`` and others are the rows, ``none`` the baseline.
    """
    data, model = Data("MNIST", batch_size=100, normalize="unit"), Model("mlp", init="xavier")
    optimizer = Optimizer(lr=0.01, schedule="constant")
    if size == "paper":
        return Config(steps=60000, evaluate_every=3000, data=data, model=model, orthogonal=CAYLEY, optimizer=optimizer)
    if size == "laptop":
        return Config(steps=3000, evaluate_every=600, data=data, model=model, orthogonal=CAYLEY, optimizer=optimizer)
    return smoke(model=Model("mlp", width=0.25), orthogonal=CAYLEY, optimizer=optimizer)


@recipe("opt-cnn-cifar100", tables="7.1, 7.4", data="CIFAR100 (laptop: CIFAR10)")
def opt_cnn_cifar100(size: Size) -> Config:
    """OPT (Gram–Schmidt) of CNN-6.

    The text (7.5.3, F.3): CNN-6 of table F.1 with batch normalization, batch 128, SGD with momentum 0.9 at 0.1, divided by 10 "when the
    performance is saturated" (here at the steps of D.1), weight decay 5e-4, He initialisation, R from N(0, 1). Augmentation is not said:
    crop and flip as in the chapters before. ``model.norm=none`` is table 7.5, ``orthogonal.normalize=True`` 7.7,
    ``orthogonal.refine=half_space_energy`` 7.6, ``orthogonal.shift=0.01`` 7.2.
    """
    gram_schmidt = Orthogonal("gram_schmidt")
    if size == "paper":
        data, optimizer = Data("CIFAR100", augment="crop_flip"), Optimizer(lr=0.1, **saturated())
        return Config(
            steps=42500,
            evaluate_every=2500,
            data=data,
            model=Model("cnn6", table="F.1"),
            orthogonal=gram_schmidt,
            optimizer=optimizer,
        )
    if size == "laptop":
        data, optimizer = Data("CIFAR10", augment="crop_flip"), Optimizer(lr=0.1, **saturated(1000))
        model = Model("cnn6", table="F.1", width=0.25)
        return Config(
            steps=1000, evaluate_every=250, data=data, model=model, orthogonal=gram_schmidt, optimizer=optimizer
        )
    return smoke(model=Model("cnn6", table="F.1", width=0.1, feature_dim=16), orthogonal=gram_schmidt)


@recipe("opt-resnet-cifar100", tables="7.8", data="CIFAR100 (laptop: CIFAR10)")
def opt_resnet_cifar100(size: Size) -> Config:
    """OPT (Cayley) of ResNet-20.

    The text (7.5.3, F.3): ResNet-20 of table F.2, otherwise as opt-cnn-cifar100.
    """
    if size == "paper":
        data, optimizer = Data("CIFAR100", augment="crop_flip"), Optimizer(lr=0.1, **saturated())
        model = Model("resnet20", table="F.2")
        return Config(steps=42500, evaluate_every=2500, data=data, model=model, orthogonal=CAYLEY, optimizer=optimizer)
    if size == "laptop":
        data, optimizer = Data("CIFAR10", augment="crop_flip"), Optimizer(lr=0.1, **saturated(800))
        model = Model("resnet20", table="F.2", width=0.5)
        return Config(steps=800, evaluate_every=200, data=data, model=model, orthogonal=CAYLEY, optimizer=optimizer)
    return smoke(model=Model("resnet20", width=0.25), orthogonal=CAYLEY)


@recipe("opt-gcn-cora", tables="7.11", data="Cora")
def opt_gcn_cora(size: Size) -> Config:
    """OPT (Cayley) of a two-layer graph network.

    The text (7.5.4, F.3): the setting of the implementation it follows, of which it states no number: Adam at 0.01, 200 steps, 16 hidden
    neurons, dropout 0.5, weight decay 5e-4 (on the first layer there, on both here). ``data.name=pubmed`` is its other column.
    """
    return replace(gcn_cora(size), orthogonal=CAYLEY)


@recipe("opt-pointnet", tables="7.12", data="ModelNet40 (laptop: ModelNet10)")
def opt_pointnet(size: Size) -> Config:
    """OPT (Cayley) of PointNet without T-Net.

    The text (7.5.5, F.3): 1024 points, batch 32, Adam at 0.001, multiplied by 0.7 every 200,000 steps, 250 epochs (76,750 steps of 9,840
    clouds, so that the rate never falls; its source counts clouds, not steps), rotation about the vertical and jitter, dropout 0.3.
    The laptop's data are points on the surface of ModelNet10's voxels.
    """
    return replace(pointnet_modelnet40(size), orthogonal=CAYLEY)


@recipe("opt-few-shot", tables="7.10", data="Tiny-ImageNet for Mini-ImageNet")
def opt_few_shot(size: Size) -> Config:
    """OPT (Cayley) of CNN-4, pretrained on 64 classes and measured on episodes of 20 others.

    The text (7.5.3, F.3): CNN-4 of table F.3 on Mini-ImageNet at 84×84, 200 epochs, Adam at 0.001, weight decay 5e-4, then 5-way 5-shot
    episodes with a linear (baseline) or cosine (baseline++, c = 2) classifier. The batch is not said: 16, as in the code it follows. The
    data are the first 100 classes of Tiny-ImageNet in order, 64, 16 and 20 of them, a stand-in. Pretraining for baseline++ is
    ``head.name=SSoftmax head.scale=2``.
    """
    adam = Optimizer("adam", lr=1e-3, schedule="constant")
    if size == "smoke":
        few_shot = FewShot(
            ways=3, shots=2, queries=5, episodes=10, epochs=2, train_classes=7, validation_classes=0, test_classes=3
        )
        data, model = replace(DIGITS, size=16), Model("cnn4", width=0.1)
        return smoke(task="few_shot", data=data, model=model, orthogonal=CAYLEY, optimizer=adam, few_shot=few_shot)
    if size == "paper":
        data = Data("TinyImageNet", size=84, batch_size=16, augment="crop_flip")
        return Config(
            task="few_shot",
            steps=400000,
            evaluate_every=20000,
            data=data,
            model=Model("cnn4"),
            orthogonal=CAYLEY,
            optimizer=adam,
        )
    data, few_shot = Data("TinyImageNet", size=32, augment="crop_flip"), FewShot(episodes=200)
    model = Model("cnn4", width=0.5)
    return Config(
        task="few_shot",
        steps=1500,
        evaluate_every=500,
        data=data,
        model=model,
        orthogonal=CAYLEY,
        optimizer=adam,
        few_shot=few_shot,
    )


@recipe("few-shot-omniglot", tables="7.10 (stand-in)", data="Omniglot")
def few_shot_omniglot(size: Size) -> Config:
    """CNN-4 on Omniglot's background characters, measured on 5-way 1-shot episodes of unseen ones.

    The network of table F.3 for 28×28 images; the text has no experiment on this data. Optimizer as in opt-few-shot.
    """
    if size == "smoke":
        return replace(opt_few_shot(size), orthogonal=Orthogonal())
    steps, width = (20000, 1.0) if size == "paper" else (1000, 0.5)
    data, few_shot = Data("Omniglot", size=28, augment="crop"), FewShot(shots=1, validation_classes=100, episodes=200)
    adam = Optimizer("adam", lr=1e-3, schedule="constant")
    return Config(
        task="few_shot",
        steps=steps,
        evaluate_every=steps // 4,
        data=data,
        model=Model("cnn4", width=width),
        optimizer=adam,
        few_shot=few_shot,
    )
