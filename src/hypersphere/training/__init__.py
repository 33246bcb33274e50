"""Training: settings, trainer, tasks, checkpoints, run folders, and ``fit``."""

from ..config import Call, call
from .averaging import MovingAverage, average_states
from .build import build_task
from .datasets import Listed, MeanImage
from .errors import NonFiniteLossError
from .experiment import Experiment
from .fitting import Choice, FitSettings, Run, fit
from .optimizers import ConstantRate, CosineRate, PlateauRate, Schedule, StepRate
from .pretraining import PretrainSettings, pretrain
from .processes import LostProcessError
from .run_folder import read_log
from .selection import Selection
from .settings import Config, Settings, TaskSettings, Term, from_json, replace, to_json
from .tasks import (
    GAN,
    Adversarial,
    Classification,
    Distillation,
    Faces,
    FewShotRecognition,
    Graph,
    LanguageModeling,
    OpenSet,
    Pretraining,
    Recognition,
    SphereFlow,
    SphericalVAE,
    Task,
)
from .trainer import Callback, Trainer
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
    "LanguageModeling",
    "Listed",
    "LostProcessError",
    "MeanImage",
    "MovingAverage",
    "NonFiniteLossError",
    "OpenSet",
    "PlateauRate",
    "PretrainSettings",
    "Pretraining",
    "Recognition",
    "Run",
    "Schedule",
    "Selection",
    "Settings",
    "SphereFlow",
    "SphericalVAE",
    "StepRate",
    "Task",
    "TaskSettings",
    "Term",
    "Trainer",
    "average_states",
    "build_task",
    "call",
    "fit",
    "from_json",
    "load_weights",
    "pretrain",
    "read_log",
    "replace",
    "start_from",
    "to_json",
]
