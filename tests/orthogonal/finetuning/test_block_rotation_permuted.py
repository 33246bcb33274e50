import torch

from hypersphere.orthogonal import TuningMethod, merge
from hypersphere.orthogonal.finetuning.block_rotation import PermutedRotation
from tests.orthogonal.finetuning.contracts import RotationContract, build


class TestPOET(RotationContract):
    method = TuningMethod("poet", 4)

    def compare(self, old, new, parts):
        """Rows are mixed too, so only the singular values of each part stay the same."""
        if parts == 2:  # the groups of a convolution share R, and each has its own R'
            parts = 1
        for a, b in zip(old.chunk(parts), new.chunk(parts), strict=True):
            assert torch.allclose(torch.linalg.svdvals(b), torch.linalg.svdvals(a), atol=1e-12)

    def test_both_sides_rotate(self):
        layer, _ = build("linear, inputs turned", torch.float64)
        w = layer.weight.detach().clone()
        self.shake(self.tune(layer))
        turns = layer.parametrizations.weight[0].change
        expected = turns.outputs.matrix()[0] @ w @ turns.inputs.matrix()[0].T
        assert torch.allclose(merge(layer).weight, expected, atol=1e-12)
        assert not torch.allclose(expected @ expected.T, w @ w.T, atol=1e-3)


def test_is_a_block_rotation_of_the_permuted_coordinates():
    like, generator = torch.empty(0, dtype=torch.float64), torch.Generator().manual_seed(0)
    turn = PermutedRotation(TuningMethod("poet", 4), 1, 8, like, generator)
    turn.raw.data.normal_()
    p = torch.eye(8, dtype=torch.float64)[turn.order[0]]
    assert torch.allclose(turn.matrix()[0], p.T @ torch.block_diag(*turn.blocks()[0]) @ p, atol=1e-12)
    order = turn.order.clone()
    turn.reset()
    assert not torch.equal(turn.order, order)
    assert torch.equal(turn.matrix()[0], torch.eye(8, dtype=torch.float64))
