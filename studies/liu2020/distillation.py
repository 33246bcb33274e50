"""An arm of two runs: a teacher, and a student that is trained on its outputs."""

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypersphere.config import Call
from hypersphere.training import Config

from .arms import Row, Training

TEACHER = "teacher."  # prefix of its settings


@dataclass(frozen=True)
class TeacherStudent(Training):
    """A run of a :class:`~hypersphere.training.Distillation`, after the run of its teacher.

    The student starts from the weights of the teacher. Both have the seed of the arm. The metrics of the teacher are stored as
    ``teacher_…``.

    Args:
        teacher: the arm that is run first.

    >>> arm = TeacherStudent(Config(steps=10), teacher=Training(Config(steps=20)))
    >>> arm.list_settings()
    {'steps': 10, 'teacher.steps': 20}
    """

    teacher: Training = field(kw_only=True)

    def with_changes(self, changes: Sequence[str]) -> "TeacherStudent":
        """Change settings of the student by ``key.path=value``, and of the teacher by ``teacher.key.path=value``.

        >>> TeacherStudent(Config(steps=10), teacher=Training(Config(steps=20))).with_changes(["teacher.steps=5"]).list_settings()
        {'steps': 10, 'teacher.steps': 5}
        """
        own = super().with_changes([change for change in changes if not change.startswith(TEACHER)])
        theirs = [change.removeprefix(TEACHER) for change in changes if change.startswith(TEACHER)]
        return TeacherStudent(
            own.config,
            self.measures,
            self.validation_changes,
            self.validation_measures,
            teacher=self.teacher.with_changes(theirs),
        )

    def with_validation(self, config: Config) -> "TeacherStudent":
        """Evaluate both runs on the same validation samples."""
        chosen, theirs = super().with_validation(config), self.teacher.with_validation(self.teacher.config)
        return TeacherStudent(chosen.config, chosen.measures, teacher=theirs)

    def list_settings(self, defaults: bool = True) -> dict[str, Any]:
        """Return the settings of both runs."""
        theirs = {f"{TEACHER}{key}": value for key, value in self.teacher.list_settings(defaults).items()}
        return {**super().list_settings(defaults), **theirs}

    def run(self, seed: int, folder: pathlib.Path, threads: int) -> Row:
        """Train or resume the teacher, then the student, and evaluate both."""
        where = folder / "teacher"
        theirs = self.teacher.run(seed, where, threads)
        if theirs.get("diverged"):
            return theirs
        assert isinstance(self.config.task, Call)
        student = Training(self.config.replace({"task.teacher": str(where)}, weights=str(where)), self.measures)
        row = student.run(seed, folder / "student", threads)
        row["metrics"] |= {f"teacher_{key}": value for key, value in theirs["metrics"].items()}
        return row
