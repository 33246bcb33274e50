import pytest
import torch

from hypersphere.geometry import accumulation_dtype, upcast
from hypersphere.geometry.numerics import is_traced


@pytest.mark.untyped
def test_who_looks_into_operations_is_noticed():
    assert not is_traced()
    seen = []

    def look(x):
        seen.append(is_traced())
        return x * 2

    torch.func.vmap(look)(torch.ones(2))
    torch.func.grad(lambda x: look(x).sum())(torch.ones(2))
    with torch.autograd.forward_ad.dual_level():
        look(torch.ones(1))
    assert seen == [True, True, True]
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x + 1 if is_traced() else x, fullgraph=True, backend="eager")
    assert compiled(torch.zeros(1)).item() == 1
    assert not is_traced()


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        ([torch.float16], torch.float32),
        ([torch.bfloat16, torch.float16], torch.float32),
        ([torch.float32, torch.float64], torch.float64),
        ([], torch.float32),
    ],
)
def test_the_widest_and_at_least_float32(dtypes, expected):
    assert accumulation_dtype(*[torch.zeros(1, dtype=d) for d in dtypes], None) == expected


def test_wide_enough_is_left_alone():
    x = torch.zeros(2, dtype=torch.float64)
    assert upcast(x) is x
    assert upcast(x.half()).dtype == torch.float32


@pytest.mark.untyped
def test_integers_are_refused():
    with pytest.raises(ValueError, match=r"floating-point tensor, got torch\.int64"):
        upcast(torch.tensor([1]))
