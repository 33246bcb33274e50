"""Tasks: what is trained and how it is measured, one file per kind."""

from .adversarial_task import Adversarial
from .classification import Classification, Headed
from .distillation import Distillation
from .faces import Faces
from .few_shot_task import FewShotRecognition
from .gan_task import GAN
from .graph import Graph
from .language_modeling import LanguageModeling
from .open_set import OpenSet
from .pretraining import Pretraining
from .recognition import Recognition
from .sphere_flow import SphereFlow
from .spherical_autoencoder import SphericalVAE
from .task import Task

__all__ = [
    "GAN",
    "Adversarial",
    "Classification",
    "Distillation",
    "Faces",
    "FewShotRecognition",
    "Graph",
    "Headed",
    "LanguageModeling",
    "OpenSet",
    "Pretraining",
    "Recognition",
    "SphereFlow",
    "SphericalVAE",
    "Task",
]
