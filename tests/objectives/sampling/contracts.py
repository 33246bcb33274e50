"""The contract of row optimizers: drawn rows follow torch's optimizer, and the others do not change."""

import torch
from torch import nn


class RowsContract:
    def optimizer(self, parameters, **options):
        raise AssertionError("the contract's class must make its optimizer")

    def dense(self, parameters, **options):
        raise AssertionError("the contract's class must make torch's optimizer")

    variants = ({}, {"weight_decay": 0.05})

    @staticmethod
    def parameters():
        generator = torch.Generator().manual_seed(0)
        shapes = [(6, 4), (4,), ()]
        return [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64)) for shape in shapes]

    @staticmethod
    def gradients(parameters, step, rows=None, sparse=True):
        generator = torch.Generator().manual_seed(100 + step)
        for p in parameters:
            p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64)
        if rows is not None:
            weight = parameters[0]
            kept = torch.tensor(rows, dtype=torch.int64)
            if sparse:
                weight.grad = torch.sparse_coo_tensor(
                    kept.unsqueeze(0), weight.grad[kept], weight.shape, check_invariants=True
                )
            else:
                mask = torch.zeros(len(weight), 1, dtype=torch.float64)
                mask[kept] = 1
                weight.grad = weight.grad * mask

    def test_is_torchs_when_every_row_is_drawn(self):
        for options in self.variants:
            for rows in (None, range(6)):
                ours, theirs = self.parameters(), self.parameters()
                mine, reference = self.optimizer(ours, **options), self.dense(theirs, **options)
                for step in range(6):
                    rate = 0.1 / (1 + step)
                    mine.param_groups[0]["lr"] = reference.param_groups[0]["lr"] = rate
                    self.gradients(ours, step, None if rows is None else list(rows))
                    self.gradients(theirs, step)
                    mine.step()
                    reference.step()
                for a, b in zip(ours, theirs, strict=True):
                    assert torch.allclose(a, b, rtol=1e-12, atol=1e-13)

    def test_a_row_that_is_not_drawn_stays_and_catches_up(self):
        """Compare with one torch optimizer per row, which makes a step only when its row is drawn."""
        for options in self.variants:
            drawn = [[0, 1, 2], [1], [1, 5], [], [0, 5], [2, 3, 4]]
            ours = self.parameters()
            mine = self.optimizer(ours, **options)
            singles, optimizers = [], []
            for row in range(6):
                singles.append(nn.Parameter(self.parameters()[0].detach()[row : row + 1].clone()))
                optimizers.append(self.dense([singles[-1]], **options))
            decay = options.get("weight_decay", 0.0)
            owed = torch.ones(6, dtype=torch.float64)
            for step, rows in enumerate(drawn):
                rate = 0.1 / (1 + step)
                mine.param_groups[0]["lr"] = rate
                before = ours[0].detach().clone()
                self.gradients(ours, step, rows)
                full = ours[0].grad.to_dense()
                mine.step()
                others = [row for row in range(6) if row not in rows]
                assert torch.equal(ours[0].detach()[others], before[others])
                for row in range(6):
                    optimizers[row].param_groups[0]["lr"] = rate
                    if row in rows:
                        with torch.no_grad():
                            singles[row] *= owed[row]
                        owed[row] = 1
                        singles[row].grad = full[row : row + 1].clone()
                        optimizers[row].step()
                    else:
                        owed[row] *= 1 - rate * decay
            for row in range(6):
                assert torch.allclose(ours[0][row], singles[row][0], rtol=1e-10, atol=1e-12)

    def test_a_gradient_moves_a_row_as_far_however_often_it_is_drawn(self):
        """Compare ten consecutive steps with ten steps that are each followed by nine without the row."""
        ends = []
        for gap in (1, 10):
            weight = nn.Parameter(torch.ones(2, 3, dtype=torch.float64))
            optimizer = self.optimizer([weight], **self.variants[-1] | {"weight_decay": 0.0})
            for step in range(10 * gap):
                row = 0 if step % gap == 0 else 1
                values = torch.full((1, 3), 1.0 + step // gap, dtype=torch.float64)
                weight.grad = torch.sparse_coo_tensor([[row]], values, (2, 3), check_invariants=True)
                optimizer.step()
            ends.append(weight.detach()[0])
        assert torch.allclose(ends[0], ends[1], rtol=1e-12)
        assert (ends[0] < 1).all()

    def test_a_state_is_saved_and_goes_on(self):
        straight, paused = self.parameters(), self.parameters()
        one, two = (self.optimizer(p, weight_decay=0.01) for p in (straight, paused))
        for step in range(3):
            for parameters, optimizer in ((straight, one), (paused, two)):
                self.gradients(parameters, step, [step, 5])
                optimizer.step()
        resumed = self.optimizer(paused, weight_decay=0.01)
        resumed.load_state_dict(two.state_dict())
        state = resumed.state[paused[0]]
        assert (state["times"].dtype, state["shrinkage"].dtype) == (torch.int64, torch.float64)
        for parameters, optimizer in ((straight, one), (paused, resumed)):
            self.gradients(parameters, 3, [0, 1])
            optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(straight, paused, strict=True))
