import base64
import io

import pytest
import torch
from PIL import Image

from hypersphere.data import InMemory
from studies.liu2020.claims import theory_images as images


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Replace CIFAR-10 by twelve smooth pictures."""
    grid = torch.linspace(0, 6, 32)
    waves = [torch.sin(grid[:, None] * (1 + i % 4) + i) * torch.cos(grid * (1 + i % 3)) for i in range(12)]
    pixels = ((torch.stack(waves)[:, None].expand(-1, 3, -1, -1) + 1) * 127).to(torch.uint8)
    stored = InMemory(pixels.contiguous(), torch.zeros(12, dtype=torch.long), ("wave",))
    monkeypatch.setattr(images, "CIFAR10", lambda train: stored)
    for cached in (images._train_autoencoder, images._load_test_images):
        cached.cache_clear()
    yield
    for cached in (images._train_autoencoder, images._load_test_images):
        cached.cache_clear()


def test_all_of_a_spectrum_is_the_image_and_phases_keep_more_than_magnitudes():
    found = {keep: images.reconstruct_from_spectrum(keep, 0, images=12) for keep in ("phase", "magnitude")}
    assert found["phase"]["metrics"]["edges"] > found["magnitude"]["metrics"]["edges"]
    x = images._load_test_images(12)
    assert images._compare_images(x, x)["correlation"] == pytest.approx(1, abs=1e-5)
    assert images._compare_images(x, -x)["edges"] == pytest.approx(-1, abs=1e-5)


def test_one_autoencoder_gives_three_reconstructions_and_pictures_of_the_first_seed_only():
    row = images.reconstruct_from_code("angle", 0, steps=3, batch=4, images=6)
    assert set(row["metrics"]) == {"correlation", "edges"}
    assert images._train_autoencoder(0, 3, 4) is images._train_autoencoder(0, 3, 4)
    picture = Image.open(io.BytesIO(base64.b64decode(row["images"]["made"][0])))
    assert picture.size == (32, 32)
    assert "images" not in images.reconstruct_from_code("norm", 1, steps=1, batch=4, images=6)
