"""Training and serving share one preprocessing: an image gives bitwise equal features in both."""

import numpy as np
import pytest
import torch
from PIL import Image

from hypersphere.config import call
from hypersphere.data import FolderSource, PicturePreprocessing, SourceDataset
from hypersphere.models import cnn3
from hypersphere.objectives import CosFace
from hypersphere.recognition import Embedder, embed
from hypersphere.training import Settings, Trainer
from hypersphere.training.tasks import Classification

TURNED = Image.Exif()
TURNED[0x0112] = 6  # the camera was rotated


@pytest.fixture
def pictures(tmp_path):
    """Pictures of two people, gray and in color, one rotated, in other sizes than the network's input."""
    for i in range(8):
        folder = tmp_path / "people" / "ab"[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        shape = (24 + i, 30) if i == 3 else (24 + i, 30, 3)
        pixels = np.random.default_rng(i).integers(0, 256, shape, dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png", exif=TURNED if i == 5 else Image.Exif())
    return tmp_path / "people"


@pytest.mark.parametrize(
    "options",
    [
        {"crop": 20},
        {"resize": "contain", "fill": 0.5, "interpolation": "bicubic", "channels": 1},
        {"resize": "cover", "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.4), "crop": (2, 3, 22, 23)},
    ],
    ids=["central", "contained", "boxed"],
)
def test_training_and_serving_see_the_same_image(pictures, tmp_path, options):
    preprocessing = PicturePreprocessing(size=(16, 12), **options)
    samples = SourceDataset(FolderSource(pictures), preprocessing)
    network = call(
        cnn3, num_classes=None, widths=(4, 4, 4), in_channels=preprocessing.channels, input_size=(16, 12), feature_dim=6
    )
    task = Classification(network, call(CosFace), samples, preprocessing=preprocessing, batch_size=4)
    Trainer(task, tmp_path / "run", Settings(steps=2, evaluate_every=2)).run()
    task.eval()
    with torch.no_grad():
        measured = task.embed(task.measured_samples, batch=1)

    embedder = Embedder.load(tmp_path / "run" / "embedder.safetensors")
    assert embedder.preprocessing == preprocessing
    files = [pictures / record.name for record in samples.records]
    served = embed(embedder, files, batch=1)
    assert torch.equal(served.features, measured)
    for i, file in enumerate(files):
        assert torch.equal(embedder(file), measured[i : i + 1])
        assert torch.equal(embedder(Image.open(file)), measured[i : i + 1])
        assert torch.equal(embedder(samples[i][0][None]), measured[i : i + 1])  # already preprocessed
