import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from hypersphere.config import call
from hypersphere.data import InMemory, PicturePreprocessing
from hypersphere.evaluation import all_pairs
from hypersphere.models import Descriptors, Joined, mlp
from hypersphere.recognition import Embedder
from hypersphere.training.fitting._fit import refine_embedder
from hypersphere.training.fitting.ensemble import NETWORK_WEIGHT, join_descriptors, join_networks


def embedder(size=(6, 6)):
    torch.manual_seed(0)
    network = call(mlp, num_classes=None, input_size=size[0], hidden=(48,))
    return Embedder(network.build(), PicturePreprocessing(size=size, channels=1, mean=0.5, std=0.25), network)


def patterns(identities, seed, noise=40, size=16):
    """Return noisy pictures of one pattern per identity."""
    draw = np.random.default_rng(seed)
    labels = torch.arange(identities).repeat_interleave(5)
    pictures = draw.integers(0, 256, (identities, 1, size, size))[labels] + draw.normal(
        0, noise, (len(labels), 1, size, size)
    )
    return InMemory(
        torch.from_numpy(pictures.clip(0, 255).astype(np.uint8)), labels, tuple(map(str, range(identities)))
    )


def blind_embedder(size=(16, 16)):
    """Return an embedder whose features hardly depend on the picture."""
    found = embedder(size)
    with torch.no_grad():
        for parameter in found.network.parameters():
            parameter.mul_(1e-3)
            if parameter.ndim == 1:
                parameter.add_(1.0)
    return found


def test_without_selection_identities_the_default_weight_is_taken(tmp_path):
    found, choices = refine_embedder([embedder((16, 16))], patterns(12, 0), None)
    assert isinstance(found.network, Joined)
    assert found.network.weights == [NETWORK_WEIGHT, 1 - NETWORK_WEIGHT]
    assert [choice.key for choice in choices] == ["descriptors"]
    assert "HOG" in choices[0].value
    assert "too few identities" in choices[0].reason
    found.save(tmp_path / "file.safetensors")
    pictures = patterns(3, 2).data
    torch.testing.assert_close(Embedder.load(tmp_path / "file.safetensors")(pictures), found(pictures))


def test_a_network_that_says_nothing_is_replaced_by_descriptors(tmp_path):
    found, choice = join_descriptors([blind_embedder()], patterns(30, 0, noise=120), patterns(20, 1, noise=120))
    eer = {
        name: float(all_pairs(x(patterns(20, 2, 120).data), patterns(20, 2, 120).labels, worst=1).roc.eer)
        for name, x in (("found", found), ("blind", blind_embedder()))
    }
    assert eer["found"] < eer["blind"]
    assert "with descriptors alone" in choice.reason
    found.save(tmp_path / "file.safetensors")
    assert isinstance(Embedder.load(tmp_path / "file.safetensors").network, Descriptors | Joined)


def test_several_networks_share_the_weight(tmp_path):
    train, pictures = patterns(12, 0), patterns(3, 2).data
    several = [embedder((16, 16)), embedder((16, 16)), embedder((16, 16))]
    for i, one in enumerate(several):
        torch.manual_seed(i)
        one.network.load_state_dict(one.call.build().state_dict())
    joined = join_networks(several, train)
    wanted = torch.zeros(len(pictures), len(pictures))
    for one in several:
        center = normalize(one(train.data), dim=1).mean(0)
        found = normalize(normalize(one(pictures), dim=1) - center, dim=1)
        wanted += found @ found.T / 3
    torch.testing.assert_close(joined(pictures) @ joined(pictures).T, wanted, atol=1e-5, rtol=1e-5)
    whole, _ = refine_embedder(several, train, None)
    assert whole.network.weights == pytest.approx([*[NETWORK_WEIGHT / 3] * 3, 1 - NETWORK_WEIGHT])
    whole.save(tmp_path / "file.safetensors")
    torch.testing.assert_close(Embedder.load(tmp_path / "file.safetensors")(pictures), whole(pictures))
    started, choices = refine_embedder(several, train, None, pretrained=True)
    torch.testing.assert_close(started(pictures), joined(pictures))
    assert choices == []


def test_a_pretrained_network_stays_alone_without_evidence():
    given = embedder((16, 16))
    found, choices = refine_embedder([given], patterns(12, 0), None, pretrained=True)
    assert found is given
    assert choices[-1].value == "none"


def test_descriptors_need_pictures_and_several_of_an_identity():
    given = embedder()
    found, choice = join_descriptors([given], patterns(20, 0, size=6), None)
    assert found is given
    assert "8×8" in choice.reason
    train = patterns(20, 0)
    single = InMemory(train.data[::5], train.labels[::5], train.classes)
    found, choice = join_descriptors([embedder((16, 16))], single, None)
    assert "two pictures" in choice.reason
