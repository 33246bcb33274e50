import pytest
import torch

from hypersphere.orthogonal import TuningMethod
from hypersphere.orthogonal.finetuning.block_rotation import BlockRotation
from hypersphere.orthogonal.finetuning.rotation import Rotation


def test_the_base_class_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        Rotation(TuningMethod(), 1, 4, torch.empty(0))


def test_error_is_measured_in_float64():
    turn = BlockRotation(TuningMethod("oft", 4), 1, 8, torch.empty(0))
    assert turn.error() == 0
    turn.raw.data.normal_()
    r = turn.matrix()[0].double()
    assert turn.error() == pytest.approx(float((r.T @ r - torch.eye(8)).abs().max()))
    turn.terms = 2  # a short series of large matrices is not orthogonal
    assert turn.error() > 0.1
