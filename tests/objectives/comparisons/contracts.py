"""The contract of all comparisons. A new one inherits it and gives its float64 formula on the logits."""

import copy
import pickle

import pytest
import torch

from hypersphere.objectives.comparisons import Comparison


class ComparisonContract:
    comparison: Comparison

    def formula(self, target, others, num_classes):
        """The loss of one sample from its own logit and a vector of the others'."""
        raise AssertionError("the contract's class must give the formula")

    @staticmethod
    def batch(n=5, classes=9):
        generator = torch.Generator().manual_seed(0)
        t = 3 * torch.randn(n, generator=generator, dtype=torch.float64)
        return t, 3 * torch.randn(n, classes, generator=generator, dtype=torch.float64)

    def summary(self, z, sizes=None):
        state = self.comparison.start(z[:, 0].detach())
        for block in z.split(sizes or z.shape[1], 1):
            state = self.comparison.add(state, block)
        return self.comparison.finish(state)

    def test_agrees_with_the_formula(self):
        t, z = self.batch()
        losses = self.comparison.loss(t, self.summary(z), 10)
        expected = [self.formula(a.item(), row.numpy(), 10) for a, row in zip(t, z, strict=True)]
        assert torch.allclose(losses, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize("sizes", [[1] * 9, [4, 5], [8, 1]], ids=str)
    def test_blocks_in_any_number_give_the_same_summary(self, sizes):
        _, z = self.batch()
        for whole, parts in zip(self.summary(z), self.summary(z, sizes), strict=True):
            assert torch.allclose(whole, parts, rtol=1e-13, atol=1e-13)

    def test_processes_share_one_summary(self):
        _, z = self.batch()
        states = [self.comparison.add(self.comparison.start(z[:, 0]), part) for part in z.split([2, 6, 1], 1)]
        for found in shared(self.comparison, states):
            for whole, parts in zip(self.summary(z), self.comparison.finish(found), strict=True):
                assert torch.allclose(whole, parts, rtol=1e-13, atol=1e-13)

    def test_a_process_without_classes_changes_nothing(self):
        _, z = self.batch()
        states = [self.comparison.start(z[:, 0]), self.comparison.add(self.comparison.start(z[:, 0]), z)]
        for found in shared(self.comparison, states):
            for whole, parts in zip(self.summary(z), self.comparison.finish(found), strict=True):
                assert torch.allclose(whole, parts, rtol=1e-13, atol=1e-13)

    def test_minus_infinity_is_left_out(self):
        _, z = self.batch()
        left = z.clone()
        left[:, 3] = -torch.inf
        rest = torch.cat([z[:, :3], z[:, 4:]], 1)
        for a, b in zip(self.summary(left), self.summary(rest), strict=True):
            assert torch.allclose(a, b, rtol=1e-13, atol=1e-13)

    def test_the_slope_is_the_derivative_block_by_block(self):
        t, z = self.batch()
        z.requires_grad_()
        summary = self.summary(z)
        (expected,) = torch.autograd.grad(self.comparison.loss(t, summary, 10).sum(), z)
        leaves = tuple(s.detach().requires_grad_() for s in summary)
        used = torch.autograd.grad(self.comparison.loss(t, leaves, 10).sum(), leaves, allow_unused=True)
        gradients = tuple(torch.zeros_like(s) if g is None else g for s, g in zip(leaves, used, strict=True))
        detached = tuple(s.detach() for s in summary)
        for part in (slice(0, 4), slice(4, 9)):
            slope = self.comparison.slope(z.detach()[:, part], detached, gradients)
            assert torch.allclose(slope, expected[:, part], rtol=1e-12, atol=1e-12)

    def test_the_slopes_of_the_loss_are_those_of_autograd(self):
        t, z = self.batch()
        summary = self.summary(z)
        found, expected = (
            kind.loss_with_slopes(self.comparison, t, summary, 10) for kind in (type(self.comparison), Comparison)
        )
        for a, b in zip((*found[:2], *found[2]), (*expected[:2], *expected[2]), strict=True):
            assert torch.allclose(a, b, rtol=1e-13, atol=1e-13)
        assert torch.equal(found[0], self.comparison.loss(t, summary, 10))

    @pytest.mark.parametrize("transposed", [False, True])
    def test_summary_and_slope_at_once_are_those_one_by_one(self, transposed):
        _, z = self.batch()
        z[:, 3] = -torch.inf
        z = z.T.contiguous().T if transposed else z
        summary = self.comparison.of_all(z)
        gradients = tuple(torch.linspace(0.5, 1, len(s), dtype=s.dtype) for s in summary)
        expected = self.comparison.slope(z, summary, gradients)
        found, slope = self.comparison.of_all_with_slope(z.clone())
        for a, b in zip((*found, slope(gradients)), (*summary, expected), strict=True):
            assert torch.allclose(a, b, rtol=1e-13, atol=1e-13)

    def test_summary_and_slope_at_once_of_no_class_and_of_large_logits(self):
        nobody = torch.full((2, 1), -torch.inf)
        found, _ = self.comparison.of_all_with_slope(nobody.clone())
        assert all(torch.equal(a, b) for a, b in zip(found, self.comparison.of_all(nobody), strict=True))
        found, slope = self.comparison.of_all_with_slope(torch.tensor([[-300.0, 300.0], [300.0, 300.0]]))
        assert all(torch.isfinite(s).all() for s in (*found, slope(tuple(torch.ones_like(s) for s in found))))

    def test_large_logits_stay_finite(self):
        t = torch.tensor([300.0, -300.0, 0.0])
        z = torch.tensor([[-300.0, 300.0], [300.0, 300.0], [-300.0, -300.0]])
        summary = self.summary(z)
        assert torch.isfinite(self.comparison.loss(t, summary, 3)).all()
        ones = tuple(torch.ones_like(s) for s in summary)
        assert torch.isfinite(self.comparison.slope(z, summary, ones)).all()

    def test_survives_a_copy(self):
        again = pickle.loads(pickle.dumps(copy.deepcopy(self.comparison)))
        t, z = self.batch()
        assert torch.equal(again.loss(t, self.summary(z), 10), self.comparison.loss(t, self.summary(z), 10))


def shared(comparison, states):
    """Return the reduced state of each process, simulated in one process.

    A call of ``reduce`` needs the tensors of all processes, so the processes are replayed until every call is answered.
    """
    answers = []
    while True:
        asked = [_asked(comparison, state, answers) for state in states]
        if all(isinstance(a, tuple) for a in asked):
            return asked
        parts, how = [a[0] for a in asked], asked[0][1]
        if how == "top":
            answers.append(torch.cat(parts, 1).topk(parts[0].shape[1], 1).values)
        else:
            answers.append(torch.stack(parts).amax(0) if how == "max" else torch.stack(parts).sum(0))


def _asked(comparison, state, answers):
    """Return the state after ``reduce``, or the first unanswered call as a list."""
    known = iter(answers)

    class QuestionError(Exception):
        pass

    def reduce(tensor, how):
        answer = next(known, None)
        if answer is None:
            raise QuestionError(tensor, how)
        return answer

    try:
        return comparison.reduce(state, reduce)
    except QuestionError as question:
        return list(question.args)
