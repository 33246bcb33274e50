"""What experiments train and how they measure it; one file a kind."""

from ..config import Config
from .base import Task
from .classification import Classification
from .faces import Faces
from .graph import Graph
from .unseen import Unseen

TASKS: dict[str, type[Task]] = {"classification": Classification, "faces": Faces, "graph": Graph, "unseen": Unseen}


def build_task(config: Config) -> Task:
    """The task a config names."""
    if config.task not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {config.task!r}")
    return TASKS[config.task](config)


__all__ = ["TASKS", "Classification", "Faces", "Graph", "Task", "Unseen", "build_task"]
