"""What experiments train and how they measure it; one file a kind."""

from ..config import Config
from .adversarial import Adversarial
from .base import Task
from .classification import Classification
from .faces import Faces
from .few_shot import FewShotRecognition
from .gan import GAN
from .graph import Graph
from .unseen import Unseen

TASKS: dict[str, type[Task]] = {
    "classification": Classification,
    "unseen": Unseen,
    "faces": Faces,
    "adversarial": Adversarial,
    "few_shot": FewShotRecognition,
    "graph": Graph,
    "gan": GAN,
}


def build_task(config: Config) -> Task:
    """The task a config names."""
    if config.task not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {config.task!r}")
    return TASKS[config.task](config)


__all__ = [
    "GAN",
    "TASKS",
    "Adversarial",
    "Classification",
    "Faces",
    "FewShotRecognition",
    "Graph",
    "Task",
    "Unseen",
    "build_task",
]
