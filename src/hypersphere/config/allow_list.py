"""The complete list of classes and functions that a file may construct, grouped by the package that exports them.

Embedder files, hub folders, adapters and run configurations describe objects as constructor calls. Reading such a file
must never run code that its author chose. Therefore names in a file are looked up only in this list, unless the caller
passes ``trust=True``. Three rules keep the list safe:

1. A listed object only allocates memory and sets attributes when it is called. No listed object loads, parses, reads
   settings, writes, fetches or calls an object by name. The only exception: a dataset of a run configuration reads the
   local data that the configuration names.
2. A name is accepted only for a parameter whose declared type it builds (:func:`hypersphere.config.decode`).
3. ``trust`` is an argument of the outermost caller. No listed object has such an argument, and a test checks it.

To make a new public class available in files, add its name to this list.
"""

import functools
from collections.abc import Callable
from typing import Any

from .names import list_public

MARGINS = """
AdditiveAngle AdditiveCosine Clipped Combined Concentration Curricular InterTopK MagnitudeAware Misclassified Multiplicative NoMargin
QualityAdaptive Shrunk TwoSided
"""
HEADS_AND_LOSSES = """
AMSoftmax ASoftmax AdaCos AdaFace Alignment Annealing ArcFace AxialSphere ByClass ByCount CenterLoss Circle
Contrastive CosFace CrossBatchMemory CurricularFace Drawn ElasticFace EuclideanContrastive EuclideanTriplet GASoftmax
HUG Hinge KoLeo LSoftmax MVSoftmax MagFace MarginSoftmax Matryoshka NTXent PrototypeSoftmax Proxies ProxyAnchor
QMargin Ramp RowAdam RowSGD SSoftmax Sample SigLIP SoftTriple Softmax SphereFace SphereFace2 SphereFaceR Stages
SubCenters SupCon Triplet UniFace Uniformity VMFSoftmax WSoftmax
"""
ANGLES = "Cosine Linear Power Sigmoid SquareCosine"
MAGNITUDES = "Ball InnerProduct Linear Log Mix Radius Seg Sphere Tanh"
LAYERS = """
AttentionScale BallConv2d Conv1d Conv2d Conv3d CosineAttention GRU GRUCell LSTM LSTMCell Linear LinearConv2d LogConv2d
MixConv2d Operator RNN RNNCell SegConv2d SphereConv2d SphereLinear SphereNorm TanhConv2d
"""
ENERGIES = """
AdversarialProjection AnglePreservingProjection AngularRiesz BilateralProjection ChannelGroups CoMHE CountSketch
FeatureEnergy Gaussian GlobalOrthogonalRegularization HadamardProjection Heat KernelStein LearnedProjection LowRankBilateral
LowRankEnergy MHE MMD NonlinearProjection Orthogonality Orthonormality RandomProjection Riesz SRIP
"""
ORTHOGONAL = """
Banded Canonical Cayley Exponential Free Givens GramSchmidt Hessenberg Householder Hyperball Lowdin Muon MuonSphere OGD
OrthogonalityPenalty Pion Refinement Skew Symmetric SymmetricPositive Triangular TuningMethod factorize finetune overparameterize
prepare_neurons
"""
NETWORKS = """
Autoencoder Conv ConvNet Descriptors DlibResNet ECAPA EfficientNetLite0 GCN GE2E Generator
GPTLanguageModel GraphNetwork IResNet Joined MLP MobileFaceNet NGPT NGPTLanguageModel Players PointNet PointNet2
Pool Projected Residual SpectrogramResNet SphereVelocity SphericalAutoencoder TransformersNetwork WithDiscriminant
cifar_resnet cnn10 cnn15 cnn18 cnn3 cnn4 cnn45 cnn6 cnn60 cnn69 cnn9 discriminator gcn generator he_normal
lsoftmax_cifar10 lsoftmax_cifar100 lsoftmax_lfw lsoftmax_mnist lsoftmax_mnist_2d mlp modified_resnet18 ngpt plain_cnn
pointnet pointnet2 resnet18 resnet20 resnet32 resnet34 resnet50 sphere_resnet18 sphereface sphereface10 sphereface20 sphereface36
sphereface4 sphereface64 timm_network
"""
DATA = """
AddNoise Affine AudioPreprocessing CIFAR10 CIFAR100 ClassBalancedSampler ColorJitter Compose CropFlip Digits Elastic
FacePreprocessing FashionMNIST Flip Gain HardClassSampler ImbalancedMultiple ImbalancedSingle LFW Letters MNIST
ModelNet10Clouds ModelNet10Voxels ModelNet40 OfClasses Omniglot PictureFolder PicturePreprocessing Planetoid
PlantedGraph PythonDocs RandomCrop RandomErasing ResizedCrop Reverberate RotateJitter Rotations Shapes SpecAugment
Speed TinyImageNet
"""
TRAINING = """
Choice ConstantRate CosineRate MovingAverage PlateauRate Selection Settings StepRate Term
"""
TASKS = (
    "Adversarial Classification Distillation Faces FewShotRecognition GAN Graph LanguageModeling OpenSet Pretraining SphereFlow "
    "SphericalVAE"
)
TORCH_LAYERS = """
AdaptiveAvgPool2d AdaptiveMaxPool2d AvgPool2d BatchNorm1d BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d ConvTranspose2d
Dropout Dropout2d ELU Flatten GELU GroupNorm Hardswish Identity InstanceNorm2d LayerNorm LeakyReLU Linear MaxPool2d Mish
PReLU ReLU ReLU6 RMSNorm SiLU Sigmoid Softplus Tanh Upsample
"""
OPTIMIZERS = "ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax LBFGS Muon NAdam RAdam RMSprop Rprop SGD SparseAdam"

CONSTRUCTIBLE: dict[str, frozenset[str]] = {
    package: frozenset(names.split())
    for package, names in {
        "hypersphere.objectives": HEADS_AND_LOSSES,
        "hypersphere.objectives.margins": MARGINS,
        "hypersphere.angular": ANGLES,
        "hypersphere.operators": LAYERS,
        "hypersphere.operators.magnitudes": MAGNITUDES,
        "hypersphere.energy": ENERGIES,
        "hypersphere.orthogonal": ORTHOGONAL,
        "hypersphere.models": NETWORKS,
        "hypersphere.data": DATA,
        "hypersphere.training": TRAINING,
        "hypersphere.training.tasks": TASKS,
        "torch.nn": TORCH_LAYERS,
        "torch.optim": OPTIMIZERS,
    }.items()
}


@functools.cache
def list_constructible() -> frozenset[Callable[..., Any]]:
    """Return every object that a file may construct.

    Returns:
        The classes and functions named in ``CONSTRUCTIBLE``.

    >>> from hypersphere.config import list_constructible
    >>> hs.objectives.ArcFace in list_constructible(), hs.training.from_json in list_constructible()
    (True, False)
    """
    listed = ((list_public(package), names) for package, names in CONSTRUCTIBLE.items())
    # Older PyTorch versions lack some optimizers.
    return frozenset(public[name] for public, names in listed for name in names if name in public)


def is_constructible(target: Callable[..., Any]) -> bool:
    """Return whether a file may construct an object: ``target in list_constructible()``.

    The packages that list the object's name are imported first. All other packages are imported only if none of them
    exports the object.

    Args:
        target: The class or function.

    >>> from hypersphere.config.allow_list import is_constructible
    >>> is_constructible(hs.objectives.ArcFace), is_constructible(hs.training.from_json)
    (True, False)
    """
    name = getattr(target, "__name__", "")
    packages = [package for package, names in CONSTRUCTIBLE.items() if name in names]
    return any(list_public(package).get(name) is target for package in packages) or target in list_constructible()
