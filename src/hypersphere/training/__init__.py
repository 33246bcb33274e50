"""Anyone's model on anyone's data: config, trainer, tasks, checkpoints, run folders."""

from ..config import Call, call
from .averaging import MovingAverage, average_states
from .build import build_task
from .callbacks import Callback
from .config import Config, Images, Term, from_json, replace, to_json
from .datasets import Listed, MeanImage, Scaling
from .errors import NonFiniteLossError
from .experiment import Experiment
from .fitting import Choice, FitSettings, Run, fit
from .log import read_log
from .processes import LostProcessError
from .schedules import ConstantRate, CosineRate, PlateauRate, Schedule, StepRate
from .selection import Selection
from .settings import Settings
from .tasks import GAN, Adversarial, Classification, Distillation, Faces, FewShotRecognition, Graph, OpenSet, Task
from .trainer import Trainer
from .weights import load_weights, start_from

__all__ = [
    "GAN",
    "Adversarial",
    "Call",
    "Callback",
    "Choice",
    "Classification",
    "Config",
    "ConstantRate",
    "CosineRate",
    "Distillation",
    "Experiment",
    "Faces",
    "FewShotRecognition",
    "FitSettings",
    "Graph",
    "Images",
    "Listed",
    "LostProcessError",
    "MeanImage",
    "MovingAverage",
    "NonFiniteLossError",
    "OpenSet",
    "PlateauRate",
    "Run",
    "Scaling",
    "Schedule",
    "Selection",
    "Settings",
    "StepRate",
    "Task",
    "Term",
    "Trainer",
    "average_states",
    "build_task",
    "call",
    "fit",
    "from_json",
    "load_weights",
    "read_log",
    "replace",
    "start_from",
    "to_json",
]
