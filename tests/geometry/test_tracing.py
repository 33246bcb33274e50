import pytest
import torch

from hypersphere.geometry.tracing import is_traced


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
