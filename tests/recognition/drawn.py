"""Synthetic images for tests, and a small embedder for them."""

import functools

import numpy as np
import torch
from PIL import Image

from hypersphere.config import call
from hypersphere.data import PicturePreprocessing
from hypersphere.models import sphereface4
from hypersphere.recognition import Embedder


def picture(identity, index, noise=40, side=16):
    """Draw an image: one pattern per identity, with different noise per index."""
    pattern = np.random.default_rng(identity).integers(0, 2, (4, 4)) * 200
    noisy = np.kron(pattern, np.ones((side // 4, side // 4))) + np.random.default_rng([identity, index, 1]).normal(
        0, noise, (side, side)
    )
    return noisy.clip(0, 255).astype(np.uint8)


def draw_folder(root, identities=6, each=5, **options):
    for identity in range(identities):
        folder = root / f"person{identity}"
        folder.mkdir(parents=True)
        for i in range(each):
            Image.fromarray(picture(identity, i, **options)).save(folder / f"{folder.name}_{i + 1:04d}.png")
    return root


@functools.cache
def small_embedder(seed=0, dim=8, mirror=False):
    torch.manual_seed(seed)
    made = call(sphereface4, input_size=16, in_channels=1, widths=(4, 4, 8, 8), feature_dim=dim, norm="batch")
    preprocessing = PicturePreprocessing(size=(16, 16), channels=1, mean=0.5, std=0.25, mirror=mirror)
    return Embedder.from_call(made, made.build().state_dict(), preprocessing)
