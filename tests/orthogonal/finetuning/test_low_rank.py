import pytest
import torch
from torch import nn

from hypersphere.orthogonal import TuningMethod, finetune, merge, orthogonality_error
from tests.orthogonal.finetuning.contracts import TuningContract, build, every_layer, shake


class LowRankContract(TuningContract):
    """A low-rank change, compared with its formula by dense products in float64."""

    @staticmethod
    def formula(w, down, up, lengths):
        raise AssertionError("the contract's class must give the formula")

    @every_layer
    def test_is_the_formula(self, kind):
        layer, _ = build(kind, torch.float64)
        before = {key: value.clone() for key, value in layer.state_dict().items()}
        self.shake(self.tune(layer))
        changes = {
            name if name != "weight" else "": site.parametrizations[name][0].change
            for site in layer.modules()
            if hasattr(site, "parametrizations")
            for name in site.parametrizations
        }
        after = merge(layer).state_dict()
        tested = 0
        for key, w in before.items():
            change = changes.get("" if key in ("weight", "out_proj.weight") else key)
            if w.ndim < 2 or change is None or key == "out_proj.weight":
                continue
            rows = (w.mT if kind == "Conv1D" else w).flatten(1).chunk(change.up.shape[0])
            lengths = getattr(change, "lengths", [None] * len(rows))
            parts = [self.formula(*each) for each in zip(rows, change.down, change.up, lengths, strict=True)]
            found = (after[key].mT if kind == "Conv1D" else after[key]).flatten(1)
            assert torch.allclose(found, torch.cat(parts), atol=1e-12), key
            tested += 1
        assert tested

    def test_the_change_has_the_rank(self):
        layer = nn.Linear(16, 40, dtype=torch.float64)
        w = layer.weight.detach().clone()
        self.shake(self.tune(layer))
        own = layer.parametrizations.weight[0].change
        change = self.undo_lengths(layer.weight.detach(), own) - w
        assert torch.linalg.matrix_rank(change, rtol=1e-9) == 3

    def undo_lengths(self, weight, own):
        return weight


class TestLoRA(LowRankContract):
    method = TuningMethod("lora", rank=3, alpha=6)

    @staticmethod
    def formula(w, down, up, lengths):
        return w + 2 * up @ down


class TestNoRA(LowRankContract):
    method = TuningMethod("nora", rank=3)

    @staticmethod
    def formula(w, down, up, lengths):
        columns = [a / a.square().sum().sqrt() for a in down.T]
        return w + up @ torch.stack(columns, 1)


class TestDoRA(LowRankContract):
    method = TuningMethod("dora", rank=3, alpha=1.5)

    @staticmethod
    def formula(w, down, up, lengths):
        changed = w + 0.5 * up @ down
        return torch.stack([m * row / row.square().sum().sqrt() for m, row in zip(lengths, changed, strict=True)])

    def undo_lengths(self, weight, own):
        base = own.start[0]
        changed = weight / own.lengths[0]
        lengths = torch.linalg.vector_norm(self.base + own.scale * own.up[0] @ own.down[0], dim=1, keepdim=True)
        assert torch.allclose(base, torch.linalg.vector_norm(self.base, dim=1, keepdim=True))
        return changed * lengths

    def tune(self, model):
        if isinstance(model, nn.Linear):
            self.base = model.weight.detach().clone()
        return super().tune(model)

    def test_a_zero_neuron_stays_zero(self):
        layer = nn.Linear(8, 12)
        layer.weight.data[3] = 0
        shake(self.tune(layer))
        layer.parametrizations.weight[0].change.up.data[0, 3] = 0
        layer.weight.square().sum().backward()
        assert not layer.weight[3].any()
        assert all(p.grad.isfinite().all() for p in layer.parameters() if p.grad is not None)


def test_no_rotation_no_error():
    with pytest.raises(ValueError, match="no tuned layer of the model has a rotation"):
        orthogonality_error(finetune(nn.Linear(8, 8), "lora"))
