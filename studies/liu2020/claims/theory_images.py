"""The content of an image is in its angles: the autoencoder of figure 1.1 and the Fourier example of the poster, as numbers."""

import base64
import functools
import io
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from hypersphere._extras import require
from hypersphere.data import CIFAR10
from hypersphere.data.streams import SPLIT, Stream
from hypersphere.models import Autoencoder

from ..arms import Row

PICTURES = 5  # images of the first seed that are stored for the picture
Images = Float[Tensor, "n channels height width"]


def reconstruct_from_spectrum(keep: Literal["phase", "magnitude"], seed: int, images: int = 500) -> Row:
    """Correlate images with their reconstructions from only the phases, or only the magnitudes, of their spectra.

    The other part comes from an image of white noise, so that the result is real. Means over test images of CIFAR-10 in gray; the
    correlation is computed over the pixels of each image, and over its edges (differences of neighboring pixels).
    """
    generator = torch.Generator().manual_seed(seed)
    x = _load_test_images(images).mean(1, keepdim=True)
    noise = torch.fft.fft2(torch.randn(x.shape, generator=generator))
    spectrum = torch.fft.fft2(x)
    magnitude, phase = (noise, spectrum) if keep == "phase" else (spectrum, noise)
    mean = x.mean((-2, -1), keepdim=True)  # both reconstructions have the mean gray of the original
    made = torch.fft.ifft2(magnitude.abs() * torch.exp(1j * phase.angle())).real
    made = (made - made.mean((-2, -1), keepdim=True)) / made.std((-2, -1), keepdim=True) * x.std((-2, -1), keepdim=True)
    made = made + mean
    return {"metrics": _compare_images(x, made), **_encode_pictures(seed, x, made)}


def reconstruct_from_code(
    keep: Literal["product", "angle", "norm"], seed: int, steps: int = 300, batch: int = 32, images: int = 500
) -> Row:
    """Correlate test images with their reconstructions from whole codes, from their angles, or from their norms (fig. 1.1).

    All three use one autoencoder, which is trained on inner products.
    """
    net, x = _train_autoencoder(seed, steps, batch), _load_test_images(images)
    with torch.no_grad():
        made = torch.cat([net(part, keep=keep) for part in x.split(100)])
    return {"metrics": _compare_images(x, made), **_encode_pictures(seed, x, made)}


@functools.lru_cache(maxsize=1)
def _train_autoencoder(seed: int, steps: int, batch: int) -> Autoencoder:
    """Train an autoencoder on CIFAR-10 by Adam with learning rate 0.002 and the squared error."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = Autoencoder(3, widths=(16, 32), code_channels=16)
    samples = CIFAR10(train=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    order = Stream(seed, SPLIT).permutation(len(samples))
    for index in order[: steps * batch].split(batch):
        x = samples.batch(index)[0].float() / 255
        loss = nn.functional.mse_loss(net(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net.eval()


@functools.lru_cache(maxsize=2)
def _load_test_images(count: int) -> Images:
    return CIFAR10(train=False).batch(torch.arange(count))[0].float() / 255


def _compare_images(x: Images, y: Images) -> dict[str, float]:
    edges = [torch.cat([t.diff(dim=-1).flatten(1), t.diff(dim=-2).flatten(1)], 1) for t in (x, y)]
    return {"correlation": _correlate(x.flatten(1), y.flatten(1)), "edges": _correlate(*edges)}


def _correlate(x: Float[Tensor, "n d"], y: Float[Tensor, "n d"]) -> float:
    """Return the mean over images of Pearson's correlation of their entries."""
    a, b = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    return nn.functional.cosine_similarity(a, b).mean().item()


def _encode_pictures(seed: int, x: Images, made: Images) -> Row:
    """Encode the first images as PNG files in base64; only for the first seed."""
    if seed != 0:
        return {}
    return {
        "images": {
            "given": [_encode_png(image) for image in x[:PICTURES]],
            "made": [_encode_png(image) for image in made[:PICTURES]],
        }
    }


def _encode_png(image: Float[Tensor, "channels height width"]) -> str:
    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).squeeze(-1)
    file = io.BytesIO()
    require("PIL.Image").fromarray(pixels.numpy()).save(file, format="PNG")
    return base64.b64encode(file.getvalue()).decode()
