"""The architectures of Liu (2020), so built that plain, spherical and decoupled networks are one code; and nGPT."""

from .autoencoder import Autoencoder
from .blocks import Conv, Layers, Pool, Residual, Row, he_normal, make_layers
from .cnn import cnn3, cnn6, cnn9, cnn10, cnn15, cnn18, cnn45, cnn60, cnn69, plain_cnn
from .cnn4 import cnn4
from .foreign import Projected, TransformersNetwork, timm_network
from .gan import Generator, Players, discriminator, generator
from .gcn import GCN, gcn, normalized_adjacency
from .lsoftmax import lsoftmax_cifar10, lsoftmax_cifar100, lsoftmax_lfw, lsoftmax_mnist, lsoftmax_mnist_2d
from .mlp import MLP, mlp
from .network import ConvNet, LayerOptions, Network, Options
from .ngpt import NGPT, NGPTBlock, ngpt
from .pointnet import PointNet, TNet, pointnet
from .resnet import cifar_resnet, modified_resnet18, resnet18, resnet20, resnet32, resnet34, sphere_resnet18
from .sphereface import sphereface, sphereface4, sphereface10, sphereface20, sphereface36, sphereface64

__all__ = [
    "GCN",
    "MLP",
    "NGPT",
    "Autoencoder",
    "Conv",
    "ConvNet",
    "Generator",
    "LayerOptions",
    "Layers",
    "NGPTBlock",
    "Network",
    "Options",
    "Players",
    "PointNet",
    "Pool",
    "Projected",
    "Residual",
    "Row",
    "TNet",
    "TransformersNetwork",
    "cifar_resnet",
    "cnn3",
    "cnn4",
    "cnn6",
    "cnn9",
    "cnn10",
    "cnn15",
    "cnn18",
    "cnn45",
    "cnn60",
    "cnn69",
    "discriminator",
    "gcn",
    "generator",
    "he_normal",
    "lsoftmax_cifar10",
    "lsoftmax_cifar100",
    "lsoftmax_lfw",
    "lsoftmax_mnist",
    "lsoftmax_mnist_2d",
    "make_layers",
    "mlp",
    "modified_resnet18",
    "ngpt",
    "normalized_adjacency",
    "plain_cnn",
    "pointnet",
    "resnet18",
    "resnet20",
    "resnet32",
    "resnet34",
    "sphere_resnet18",
    "sphereface",
    "sphereface4",
    "sphereface10",
    "sphereface20",
    "sphereface36",
    "sphereface64",
    "timm_network",
]
