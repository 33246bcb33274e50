"""The architectures of Liu (2020), nGPT, imported networks, and the catalog of pretrained models."""

from ._gcn import GCN, gcn, normalized_adjacency
from ._mlp import MLP, mlp
from ._ngpt import NGPT, NGPTBlock, ngpt
from ._pointnet import PointNet, TNet, pointnet
from ._pointnet2 import PointNet2, SetAbstraction, pointnet2
from ._sphereface import sphereface, sphereface4, sphereface10, sphereface20, sphereface36, sphereface64
from .autoencoder import Autoencoder
from .blocks import Conv, Layers, Pool, Residual, Row, he_normal, make_layers
from .catalog import CATALOG, FetchError, ModelEntry, fetch_model, find_entry, load_network
from .cnn import cnn3, cnn4, cnn6, cnn9, cnn10, cnn15, cnn18, cnn45, cnn60, cnn69, plain_cnn
from .descriptors import Descriptors, Joined, describe_pictures
from .dlib_resnet import DlibResNet
from .ecapa import ECAPA
from .efficientnet_lite import EfficientNetLite0
from .foreign import Projected, TransformersNetwork, WithDiscriminant, timm_network
from .gan import Generator, Players, discriminator, generator
from .ge2e import GE2E
from .graph_network import GraphNetwork, UnsupportedOperatorError
from .insightface_import import INSIGHTFACE_ARCHITECTURES, read_insightface
from .iresnet import IResNet
from .language_models import GPTLanguageModel, NGPTLanguageModel
from .lsoftmax import lsoftmax_cifar10, lsoftmax_cifar100, lsoftmax_lfw, lsoftmax_mnist, lsoftmax_mnist_2d
from .mobilefacenet import MobileFaceNet
from .network import ConvNet, ConvOptions, LayerOptions, Network, Options, StageOptions, read_features
from .onnx_import import import_onnx, read_input_shape
from .pooling_over_time import AttentivePooling, StatisticsPooling, pool_statistics
from .resnet import cifar_resnet, modified_resnet18, resnet18, resnet20, resnet32, resnet34, resnet50, sphere_resnet18
from .spectrogram_resnet import SpectrogramResNet
from .spherical_autoencoder import SphericalAutoencoder
from .velocity_field import SphereVelocity, geodesic_velocity, integrate_flow

__all__ = [
    "CATALOG",
    "ECAPA",
    "GCN",
    "GE2E",
    "INSIGHTFACE_ARCHITECTURES",
    "MLP",
    "NGPT",
    "AttentivePooling",
    "Autoencoder",
    "Conv",
    "ConvNet",
    "ConvOptions",
    "Descriptors",
    "DlibResNet",
    "EfficientNetLite0",
    "FetchError",
    "GPTLanguageModel",
    "Generator",
    "GraphNetwork",
    "IResNet",
    "Joined",
    "LayerOptions",
    "Layers",
    "MobileFaceNet",
    "ModelEntry",
    "NGPTBlock",
    "NGPTLanguageModel",
    "Network",
    "Options",
    "Players",
    "PointNet",
    "PointNet2",
    "Pool",
    "Projected",
    "Residual",
    "Row",
    "SetAbstraction",
    "SpectrogramResNet",
    "SphereVelocity",
    "SphericalAutoencoder",
    "StageOptions",
    "StatisticsPooling",
    "TNet",
    "TransformersNetwork",
    "UnsupportedOperatorError",
    "WithDiscriminant",
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
    "describe_pictures",
    "discriminator",
    "fetch_model",
    "find_entry",
    "gcn",
    "generator",
    "geodesic_velocity",
    "he_normal",
    "import_onnx",
    "integrate_flow",
    "load_network",
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
    "pointnet2",
    "pool_statistics",
    "read_features",
    "read_input_shape",
    "read_insightface",
    "resnet18",
    "resnet20",
    "resnet32",
    "resnet34",
    "resnet50",
    "sphere_resnet18",
    "sphereface",
    "sphereface4",
    "sphereface10",
    "sphereface20",
    "sphereface36",
    "sphereface64",
    "timm_network",
]
