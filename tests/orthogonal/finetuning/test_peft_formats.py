"""The tensors of peft's files, compared with the equations of its methods in float64.

The comparison with peft itself is in test_peft_files.py.
"""

import pytest
import torch
from torch import nn

from hypersphere.orthogonal import TuningMethod, finetune
from hypersphere.orthogonal.finetuning.adapter import Adapter
from hypersphere.orthogonal.finetuning.peft_formats import FORMATS, WRITTEN_AS
from hypersphere.orthogonal.finetuning.tuning_method import TUNING_NAMES
from tests.orthogonal.finetuning.contracts import shake


def tune(name, **options):
    torch.manual_seed(3)
    layer = nn.Linear(16, 6)
    frozen = layer.weight.detach().double().clone()
    model = shake(finetune(nn.Sequential(layer), TuningMethod(name, **options), classifier=False))
    own = next(module for module in model.modules() if isinstance(module, Adapter))
    return model[0], own, frozen


def rotate_blocks(tensors, block):
    """R of OFT: (I − Q)(I + Q)⁻¹ per block."""
    i, j = torch.triu_indices(block, block, 1)
    blocks = []
    for entries in tensors["oft_R.weight"].double():
        q = torch.zeros(block, block, dtype=torch.float64)
        q[i, j], q[j, i] = entries, -entries
        eye = torch.eye(block, dtype=torch.float64)
        blocks.append((eye - q) @ torch.linalg.inv(eye + q))
    return torch.block_diag(*blocks)


def compute_oft(tensors, config, frozen):
    return frozen @ rotate_blocks(tensors, config["oft_block_size"]).T


def compute_hra(tensors, config, frozen):
    result = frozen
    for u in tensors["hra_u"].double().T:
        u = u / u.norm()
        result = result @ (torch.eye(len(u), dtype=torch.float64) - 2 * torch.outer(u, u))
    return result


def compute_lora(tensors, config, frozen):
    change = tensors["lora_B.weight"].double() @ tensors["lora_A.weight"].double()
    return frozen + config["lora_alpha"] / config["r"] * change


def compute_dora(tensors, config, frozen):
    rows = compute_lora(tensors, config, frozen)
    return tensors["lora_magnitude_vector"].double()[:, None] * rows / rows.norm(dim=1, keepdim=True)


CASES = [
    ("oft", {"block": 8}, compute_oft),
    ("hra", {"rank": 4}, compute_hra),
    ("lora", {"rank": 3, "alpha": 5.0}, compute_lora),
    ("nora", {"rank": 3}, compute_lora),
    ("dora", {"rank": 3}, compute_dora),
]


@pytest.mark.parametrize(("name", "options", "compute"), CASES)
def test_written_tensors_follow_the_equation_of_the_method(name, options, compute):
    layer, own, frozen = tune(name, **options)
    written = FORMATS[WRITTEN_AS[name]]
    tensors, config = written.write(own, layer), written.configure({"0": own})
    assert set(tensors) <= set(written.names)
    torch.testing.assert_close(compute(tensors, config, frozen).float(), layer.weight.detach(), atol=1e-5, rtol=1e-5)
    assert (layer.weight - frozen).abs().max() > 1e-2


@pytest.mark.parametrize(("name", "options"), [(name, options) for name, options, _ in CASES if name != "nora"])
def test_written_tensors_are_read_back(name, options):
    layer, own, _ = tune(name, **options)
    written = FORMATS[WRITTEN_AS[name]]
    tensors, config = written.write(own, layer), written.configure({"0": own})
    assert written.read_method(config, tensors).name == name
    expected = layer.weight.detach().clone()
    tensors = {key: value.detach().clone() for key, value in tensors.items()}
    shake(nn.Sequential(layer))
    assert not torch.allclose(layer.weight, expected, atol=1e-3)
    written.read(own, tensors, config)
    torch.testing.assert_close(layer.weight.detach(), expected, atol=1e-5, rtol=1e-5)


def test_every_method_but_poet_has_a_format():
    assert set(TUNING_NAMES) - set(WRITTEN_AS) == {"poet"}
    assert set(WRITTEN_AS.values()) == set(FORMATS)


@pytest.mark.parametrize("kind", FORMATS)
def test_settings_that_would_change_the_result_are_refused(kind):
    written = FORMATS[kind]
    written.refuse_settings({})
    with pytest.raises(ValueError, match="the adapter has bias='all'"):
        written.refuse_settings({"bias": "all"})
    for key, (_, reason) in written.required.items():
        with pytest.raises(ValueError, match=f"the adapter has {key}='other': {reason}"):
            written.refuse_settings({key: "other"})


def test_misshapen_tensors_are_refused():
    _, own, _ = tune("lora", rank=3)
    tensors = {"lora_A.weight": torch.zeros(3, 15), "lora_B.weight": torch.zeros(6, 3)}
    with pytest.raises(ValueError, match=r"a tensor of the adapter has shape \(3, 15\), the layer needs \(3, 16\)"):
        FORMATS["LORA"].read(own, tensors, {})
    with pytest.raises(ValueError, match=r"oft_R\.weight has 5 entries per row"):
        FORMATS["OFT"].read_method({"use_cayley_neumann": False}, {"oft_R.weight": torch.zeros(2, 5)})


def test_layers_that_peft_treats_otherwise_are_named():
    oft, lora = FORMATS["OFT"], FORMATS["LORA"]
    assert "grouped" in (FORMATS["HRA"].explain_layer(nn.Conv2d(4, 4, 1, groups=2), nn.Conv2d) or "")
    assert "rotates the patches" in (oft.explain_layer(nn.Conv2d(4, 4, 3), nn.Conv2d) or "")
    assert lora.explain_layer(nn.Conv2d(4, 4, (3, 1)), nn.Conv2d) is None
    assert "a Conv1d" in (lora.explain_layer(nn.Conv1d(4, 4, 3), nn.Conv1d) or "")
