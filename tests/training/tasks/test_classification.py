from hypersphere.training.config import Config, Data, Energy, Head, Model, Orthogonal
from tests.training.contracts import TaskContract

SMALL = Data("Digits", batch_size=32)
CNN = Model("cnn3", width=0.1, feature_dim=8)


class TestMargin(TaskContract):
    config = Config(
        data=SMALL, model=CNN, head=Head("ASoftmax", annealed=True), energy=Energy("MHE", output=1.0, classes=1.0)
    )


class TestCompressiveEnergy(TaskContract):
    config = Config(data=SMALL, model=CNN, energy=Energy("CoMHE"))


class TestRotations(TaskContract):
    config = Config(data=SMALL, model=Model("mlp", width=0.1), orthogonal=Orthogonal("regularized"))


class TestClouds(TaskContract):
    config = Config(data=Data("Shapes", batch_size=16, points=32), model=Model("pointnet", width=0.1))
