import pytest
import torch

from hypersphere.geometry import accumulation_dtype, upcast


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
