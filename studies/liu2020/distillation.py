"""An arm of two runs, one after the other: a network, and another that learns from it."""

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypersphere.config import Call
from hypersphere.training import Config

from .arms import Row, Training

TEACHER = "teacher."  # before its settings


@dataclass(frozen=True)
class Taught(Training):
    """A run of a config whose task is a :class:`~hypersphere.training.Distillation`, after that of its ``teacher``.

    The student starts from the weights of its teacher; both have the seed of the arm. Measures of the teacher are in the row as
    ``teacher_…``.

    Args:
        teacher: the run that comes first, with measures of its own.

    >>> arm = Taught(Config(steps=10), teacher=Training(Config(steps=20)))
    >>> arm.setting()
    {'steps': 10, 'teacher.steps': 20}
    """

    teacher: Training = field(kw_only=True)

    def changed(self, changes: Sequence[str]) -> "Taught":
        """Settings of the teacher are changed by ``teacher.key.path=value``.

        >>> Taught(Config(steps=10), teacher=Training(Config(steps=20))).changed(["teacher.steps=5"]).setting()
        {'steps': 10, 'teacher.steps': 5}
        """
        own = super().changed([change for change in changes if not change.startswith(TEACHER)])
        theirs = [change.removeprefix(TEACHER) for change in changes if change.startswith(TEACHER)]
        return Taught(own.config, self.measures, self.held, self.held_measures, teacher=self.teacher.changed(theirs))

    def held_out(self, config: Config) -> "Taught":
        """Both runs see the same training samples."""
        chosen, theirs = super().held_out(config), self.teacher.held_out(self.teacher.config)
        return Taught(chosen.config, chosen.measures, teacher=theirs)

    def setting(self, defaults: bool = True) -> dict[str, Any]:
        """Those of both runs."""
        theirs = {f"{TEACHER}{key}": value for key, value in self.teacher.setting(defaults).items()}
        return {**super().setting(defaults), **theirs}

    def make(self, seed: int, folder: pathlib.Path, threads: int) -> Row:
        """Train or resume the teacher, then the student, and measure both."""
        where = folder / "teacher"
        theirs = self.teacher.make(seed, where, threads)
        if theirs.get("diverged"):
            return theirs
        assert isinstance(self.config.task, Call)
        student = Training(self.config.replace({"task.teacher": str(where)}, weights=str(where)), self.measures)
        row = student.make(seed, folder / "student", threads)
        row["metrics"] |= {f"teacher_{key}": value for key, value in theirs["metrics"].items()}
        return row
