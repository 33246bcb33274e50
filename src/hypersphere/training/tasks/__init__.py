"""What is trained and how it is measured; one file a kind."""

from .adversarial import Adversarial
from .base import Task
from .classification import Classification
from .faces import Faces
from .few_shot import FewShotRecognition
from .gan import GAN
from .graph import Graph
from .headed import Headed
from .open_set import OpenSet

__all__ = ["GAN", "Adversarial", "Classification", "Faces", "FewShotRecognition", "Graph", "Headed", "OpenSet", "Task"]
