import pytest
import torch

from hypersphere.config import call
from hypersphere.training import Settings


@pytest.mark.untyped  # values of another type are what is tried
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *(({name: 0}, f"{name} must be an integer ≥ 1, got 0") for name in ("steps", "patience")),
        ({"keep": 0}, "keep must lie in 1 … 1000, got 0"),
        ({"keep": 10**6}, "keep must lie in 1 … 1000, got 1000000"),
        ({"average": 2**32}, "average must lie in 0 … 1000, got 4294967296"),
        ({"accumulate": 0}, "accumulate must lie in 1 … 65536, got 0"),
        ({"seed": -1}, "seed must be an integer ≥ 0, got -1"),
        ({"steps": True}, "steps must be an integer ≥ 1, got True"),
        ({"steps": 2**53}, "steps must be an integer"),
        ({"timeout": 0}, "timeout must be an integer ≥ 1, got 0"),
        ({"threads": 2000}, "threads must lie in 0 … 1024, got 2000"),
        ({"clip": 0.0}, "clip must be a number > 0 or none, got 0.0"),
        ({"clip": float("nan")}, "clip must be a number > 0 or none, got nan"),
        ({"ema": 1.0}, r"ema must lie in \(0, 1\) or be none, got 1.0"),
        ({"layer_decay": 1.5}, "layer_decay must lie in"),
        ({"precision": "fp8"}, "precision must be no, bf16 or fp16, got 'fp8'"),
        ({"rates": {"head": -1.0}}, "rates must be numbers ≥ 0, got -1.0 for 'head'"),
        ({"optimizer": call(torch.optim.SGD, lr=float("nan"))}, "optimizer.lr must be a finite number ≥ 0, got nan"),
    ],
)
def test_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        Settings(**changes)


def test_a_copy_with_other_values():
    changed = Settings().replace(steps=3, optimizer__lr=0.5, schedule__milestones=(1,))
    assert (changed.steps, changed.optimizer.get("lr"), changed.schedule.get("milestones")) == (3, 0.5, (1,))
    assert Settings().steps == 1000
    assert Settings(layer_decay=1.0).layer_decay == 1.0
