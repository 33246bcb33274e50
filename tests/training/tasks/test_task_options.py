import inspect

import pytest

from hypersphere.config import parameters
from hypersphere.training import Adversarial, Classification, Faces, FewShotRecognition, Graph, OpenSet
from hypersphere.training.tasks.task_options import TaskOptions


@pytest.mark.parametrize("task", [Adversarial, Faces, FewShotRecognition, Graph, OpenSet])
def test_every_task_of_classes_takes_what_classification_takes(task):
    named = [p.name for p in inspect.signature(Classification).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert set(named) == set(TaskOptions.__annotations__)
    assert set(named) <= parameters(task).keys()
