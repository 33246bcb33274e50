import pytest
import torch

from hypersphere.orthogonal import TuningMethod
from hypersphere.orthogonal.finetuning.reflection_rotation import ReflectionRotation


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "lo"}, "method must be one of oft, coft, boft, hra, poet, lora, nora, dora, got 'lo'"),
        ({"block": 1}, "block must be an integer ≥ 2, got 1"),
        ({"terms": 5}, "terms must be an even integer ≥ 2, or None for the exact transform, got 5"),
        ({"name": "coft", "eps": 0}, "eps must be a number > 0, got 0"),
        ({"name": "boft", "factors": 0}, "factors must be an integer ≥ 1, got 0"),
        ({"name": "hra", "rank": 3}, "rank must be an even integer ≥ 2"),
        ({"name": "oft", "rank": 4}, "rank=4 has no meaning for 'oft'"),
        ({"name": "hra", "terms": 4}, "terms=4 has no meaning for 'hra'"),
    ],
)
@pytest.mark.untyped
def test_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        TuningMethod(**arguments)


@pytest.mark.parametrize(
    ("method", "n", "fits"),
    [
        (TuningMethod("oft", 32), 768, (32, 1)),
        (TuningMethod("oft", 32), 27, (27, 1)),
        (TuningMethod("oft", 32), 75, (25, 1)),
        (TuningMethod("boft", 32, factors=3), 768, (32, 3)),
        (TuningMethod("boft", 32, factors=2), 45, (15, 1)),
        (TuningMethod("boft", 8, factors=2), 36, (6, 2)),
        (TuningMethod("oft", 8), 37, (1, 1)),
    ],
)
def test_the_block_fits_the_layer(method, n, fits):
    assert method.choose_block(n) == fits
    assert (method.explain_misfit(n) is None) == (fits[0] > 1)


def test_a_method_is_made_again_from_its_options():
    for method in (
        TuningMethod(),
        TuningMethod("coft", 8, eps=0.1),
        TuningMethod("boft", factors=3),
        TuningMethod("hra"),
    ):
        assert TuningMethod(**method.options()) == method


def test_few_numbers_get_few_reflections():
    turn = ReflectionRotation(TuningMethod("hra", rank=8), 1, 5, torch.empty(0))
    assert turn.rank == 4
    assert TuningMethod("hra").describe(5) == "4 reflections"
    assert TuningMethod("hra").explain_misfit(1) == "its neurons have 1 number, which cannot be rotated"
