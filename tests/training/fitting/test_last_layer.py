import numpy as np
import torch

from hypersphere.config import call
from hypersphere.data import InMemory, PicturePreprocessing
from hypersphere.models import mlp
from hypersphere.recognition import Embedder
from hypersphere.training.fitting.last_layer import choose_last_layer


def samples(identities, seed, noise):
    """Return pictures whose identity is in the first row. The other rows are stronger noise."""
    draw = np.random.default_rng(seed)
    labels = torch.arange(identities).repeat_interleave(6)
    pictures = draw.integers(0, 256, (len(labels), 1, 6, 6)) if noise else np.full((len(labels), 1, 6, 6), 128)
    pictures[:, 0, 0] = (draw.integers(60, 196, (identities, 6))[labels] + draw.normal(0, 4, (len(labels), 6))).clip(
        0, 255
    )
    return InMemory(torch.from_numpy(pictures.astype(np.uint8)), labels, tuple(map(str, range(identities))))


def embedder(size=(6, 6)):
    torch.manual_seed(0)
    network = call(mlp, num_classes=None, input_size=size[0], hidden=(48,))
    return Embedder(network.build(), PicturePreprocessing(size=size, channels=1, mean=0.5, std=0.25), network)


def test_a_discriminant_that_helps_is_stored_with_the_embedder(tmp_path):
    found, choice = choose_last_layer(embedder(), samples(60, 0, True), samples(20, 1, True))
    assert "linear discriminant" in choice.value
    found.save(tmp_path / "file.safetensors")
    pictures = samples(5, 2, True).data
    torch.testing.assert_close(Embedder.load(tmp_path / "file.safetensors")(pictures), found(pictures))
    assert found.call.name == "WithDiscriminant"


def test_an_embedder_that_is_best_as_it_is_stays():
    given = embedder()
    selection = samples(20, 1, False)
    selection.data[:] = selection.data[::6].repeat_interleave(6, 0)  # equal pictures per identity: EER 0
    found, choice = choose_last_layer(given, samples(60, 0, True), selection)
    assert found is given
    assert choice.value == "none"
    assert choice.reason == (
        "neither a linear discriminant nor mirror images clearly lower the EER of the 20 selection identities (0 %)"
    )


def test_training_identities_with_one_picture_each_have_no_discriminant():
    train = samples(30, 0, True)
    single = InMemory(train.data[::6], train.labels[::6], train.classes)
    found, _ = choose_last_layer(embedder(), single, samples(10, 1, True))
    assert found.call.name == "mlp"
