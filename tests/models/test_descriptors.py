import math

import numpy as np
import pytest
import torch

from hypersphere.config import call
from hypersphere.data import PicturePreprocessing
from hypersphere.models import Descriptors, Joined, describe_pictures, mlp
from hypersphere.models.descriptors import (
    PatchResponses,
    compute_descriptor_sizes,
    local_binary_patterns,
    oriented_gradients,
    row_statistics,
)
from hypersphere.recognition import Embedder, export_onnx


def test_local_binary_patterns_by_brute_force():
    x = torch.rand(2, 1, 18, 10, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    codes = [code for code in range(256) if sum(code >> i & 1 != code >> (i + 1) % 8 & 1 for i in range(8)) <= 2]
    assert len(codes) == 58
    around = ((-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1))
    wanted = np.zeros((2, 2, 59))
    for n in range(2):
        for i in range(1, 17):
            for j in range(1, 9):
                bits = [x[n, 0, i + a, j + b] >= x[n, 0, i, j] for a, b in around]
                code = sum(int(bit) << place for place, bit in enumerate(bits))
                wanted[n, (i - 1) * 2 // 16, codes.index(code) if code in codes else 58] += 1
    wanted = np.sqrt(wanted / wanted.sum(2, keepdims=True)).reshape(2, -1)
    np.testing.assert_allclose(local_binary_patterns(x).numpy(), wanted, atol=1e-12)


def test_oriented_gradients_by_brute_force():
    x = torch.rand(1, 1, 16, 24, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    gray = np.pad(x[0, 0].numpy(), 1, mode="edge")
    cells = np.zeros((2, 3, 9))
    for i in range(16):
        for j in range(24):
            across, down = gray[i + 1, j + 2] - gray[i + 1, j], gray[i + 2, j + 1] - gray[i, j + 1]
            place = (math.atan2(down, across) % math.pi) / math.pi * 9
            low = min(int(place), 8)
            cells[i // 8, j // 8, low] += math.hypot(across, down) * (1 - (place - low)) / 64
            cells[i // 8, j // 8, (low + 1) % 9] += math.hypot(across, down) * (place - low) / 64
    blocks = []
    for j in range(2):
        block = cells[:2, j : j + 2].transpose(2, 0, 1).reshape(-1)  # by orientation, then by cell
        block = np.minimum(block / (np.linalg.norm(block) + 1e-6), 0.2)
        blocks.append(block / (np.linalg.norm(block) + 1e-6))
    np.testing.assert_allclose(oriented_gradients(x)[0].numpy(), np.concatenate(blocks), atol=1e-9)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(4, 4), (8, 8), (17, 22), (40, 80), (36, 28)])
def test_sizes_are_those_of_the_descriptors(channels, size):
    found = describe_pictures(torch.rand(2, channels, *size))
    assert {name: part.shape[1] for name, part in found.items()} == compute_descriptor_sizes(channels, size)


@pytest.mark.parametrize(
    ("size", "cells"), [((14, 17), (4, 4)), ((9, 30), (4, 1)), ((30, 9), (1, 4)), ((6, 8), (3, 4))]
)
def test_patch_responses_by_brute_force(size, cells):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, *size, generator=generator, dtype=torch.float64)
    net = PatchResponses(3, size, filters=4, side=5).double()
    net.bias.copy_(torch.randn(4, generator=generator))
    side = net.side
    positions = [range(length - side + 1) for length in size]
    sums = torch.zeros(2, 8, *cells, dtype=torch.float64)
    counts = torch.zeros(cells, dtype=torch.float64)
    for i in positions[0]:
        for j in positions[1]:
            patch = x[:, :, i : i + side, j : j + side].flatten(1)
            patch = (patch - patch.mean(1, keepdim=True)) / (patch.var(1, keepdim=True) + net.contrast).sqrt()
            response = patch @ net.weight.flatten(1).T + net.bias
            cell = i * cells[0] // len(positions[0]), j * cells[1] // len(positions[1])
            both = torch.cat([response - 0.5, -response - 0.5], 1).clamp(min=0)
            sums[:, :, cell[0], cell[1]] += both
            counts[cell] += 1
    wanted = (sums / counts).flatten(1).clamp(min=1e-8).sqrt()
    torch.testing.assert_close(net(x), wanted)
    assert net.feature_dim == wanted.shape[1]


def test_the_gradient_of_patch_responses_is_finite_where_all_are_zero():
    x = torch.zeros(1, 1, 12, 12, requires_grad=True)
    PatchResponses(1, (12, 12), filters=3)(x).sum().backward()
    assert x.grad.isfinite().all()


def test_wrong_arguments_of_patch_responses_are_named():
    with pytest.raises(ValueError, match="filters must be an integer"):
        PatchResponses(1, (12, 12), filters=0)
    with pytest.raises(ValueError, match="at least 4×4"):
        PatchResponses(1, (3, 12), filters=4)


def test_row_statistics_are_those_of_torch():
    x = torch.rand(3, 2, 5, 11, dtype=torch.float64)
    wanted = torch.cat([x.mean(3).flatten(1), x.std(3).flatten(1)], 1)
    torch.testing.assert_close(row_statistics(x), wanted)
    torch.testing.assert_close(row_statistics(x.mT), wanted)


def test_weights_are_shares_of_the_cosine():
    net = Descriptors(1, (16, 16), (3, 4, 0, 5, 0), weights=(1, 2, 9, 1, 9))
    (found,) = net(torch.rand(1, 1, 16, 16)).detach()
    lengths = torch.stack([part.norm() for part in found.split([3, 4, 5])])
    torch.testing.assert_close(lengths.square(), torch.tensor([0.25, 0.5, 0.25]))


@pytest.mark.parametrize("options", [{"dims": (4, 4)}, {"dims": (0, 0, 0)}, {"dims": (1, 1, 1), "weights": (1, -1, 1)}])
def test_wrong_arguments_are_named(options):
    with pytest.raises(ValueError, match="must be"):
        Descriptors(1, (8, 8), **options)
    with pytest.raises(ValueError, match="weights must be"):
        Joined((torch.nn.Flatten(), torch.nn.Flatten()), (4, 4), weights=(1.5, -0.5))
    with pytest.raises(ValueError, match="dims must be"):
        Joined((torch.nn.Flatten(), torch.nn.Flatten()), (4,))


def test_joined_cosine_is_the_weighted_mean():
    first, second = torch.nn.Linear(6, 3), torch.nn.Linear(6, 5)
    net = Joined((first, second), (3, 5), weights=(0.3, 0.7))
    net.centers[:3] = torch.tensor([0.1, -0.2, 0.3])
    x = torch.randn(2, 6)
    one = torch.nn.functional.normalize(first(x), dim=1) - net.centers[:3]
    wanted = 0.3 * torch.cosine_similarity(one[:1], one[1:]) + 0.7 * torch.cosine_similarity(*second(x)[:, None])
    found = net(x)
    torch.testing.assert_close((found[0] @ found[1])[None], wanted)


def joined_embedder():
    network = call(mlp, num_classes=None, input_size=20, hidden=(16,))
    described = call(
        Descriptors,
        in_channels=1,
        input_size=(20, 20),
        dims=(4, 5, 6, 0, 3, 2),
        weights=(1.0, 2.0, 1.0, 0.0, 1.0, 1.0),
        filters=5,
    )
    whole = call(Joined, networks=(network, network, described), dims=(16, 16, 20), weights=(0.2, 0.2, 0.6))
    return Embedder(whole.build(), PicturePreprocessing(size=(20, 20), channels=1), whole)


def test_joined_networks_are_saved_and_loaded(tmp_path):
    embedder, pictures = joined_embedder(), torch.randint(0, 256, (3, 1, 20, 20), dtype=torch.uint8)
    embedder.save(tmp_path / "joined.safetensors")
    torch.testing.assert_close(Embedder.load(tmp_path / "joined.safetensors")(pictures), embedder(pictures))


def test_joined_networks_are_exported(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    report = export_onnx(
        joined_embedder(), tmp_path / "joined.onnx", torch.randint(0, 256, (4, 1, 20, 20), dtype=torch.uint8)
    )
    assert report.difference < 1e-4
