"""The work behind the routes: decoding in a few threads, embedding in one, the gallery in another."""

import asyncio
import io
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import torch
from fastapi import UploadFile
from jaxtyping import Float
from torch import Tensor

from ..._extras import require
from ...geometry import cosine
from ..embedder import Embedder
from .batching import Batcher
from .desk import Desk
from .limits import Limits
from .refusals import Refusal
from .uploads import Upload, prepare

T = TypeVar("T")
DECODERS = 2  # large images at a time, each of which takes several times its pixels in memory


class Engine:
    """An embedder and a gallery, used by many requests at once.

    Args:
        embedder: Makes the features.
        gallery: The file of a gallery, or ``postgresql://…``.
        limits: What a request may take.
        window: Seconds that an image waits for others to be embedded with.

    >>> import tempfile
    >>> network = hs.config.call(hs.models.mlp, num_classes=None, input_size=4, hidden=(16,))
    >>> embedder = Embedder(network.build(), hs.data.Preprocessing(size=(4, 4), channels=1), network)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     engine = Engine(embedder, f"{folder}/people.db", Limits(images=4))
    ...     engine.batcher.submit([torch.zeros(1, 4, 4, dtype=torch.uint8)]).result().shape
    ...     engine.close()
    torch.Size([1, 16])
    """

    def __init__(self, embedder: Embedder, gallery: str | Path, limits: Limits | None = None, *, window: float = 0.002):
        self.embedder, self.limits = embedder, limits or Limits()
        self.desk = Desk(gallery, embedder.fingerprint)
        self.batcher = Batcher(embedder, window)
        self._decoders = ThreadPoolExecutor(DECODERS, "decoder")
        self._clerk = ThreadPoolExecutor(1, "gallery")

    async def features(self, uploads: Sequence[Upload]) -> Float[Tensor, "n d"]:
        """Return the features of uploaded images, or a refusal: 503 when they are not there in time."""
        if not uploads or len(uploads) > self.limits.images:
            message = f"a request must hold 1 to {self.limits.images} images, got {len(uploads)}"
            raise Refusal(413 if uploads else 422, "wrong_number_of_images", message)
        try:
            return await asyncio.wait_for(self._features(uploads), self.limits.answer_seconds)
        except asyncio.TimeoutError:
            message = f"no features within {self.limits.answer_seconds:g} s: the service is busy, come again"
            raise Refusal(503, "timeout", message, {"Retry-After": "5"}) from None

    def warm_up(self) -> None:
        """Decode and embed one grey picture, so that what is missing is said at once and the first request is no slower."""
        file = io.BytesIO()
        require("PIL.Image").new("L", (256, 256), 128).save(file, "PNG")
        try:
            prepared = prepare([Upload("image", file.getvalue())], self.embedder.preprocessing, self.limits.pixels)
        except Refusal:  # one of this size is not for this preprocessing
            prepared = [torch.zeros(self.embedder.preprocessing.channels, *self.embedder.preprocessing.size).byte()]
        features = self.batcher.submit(prepared).result()
        cosine(features, features)

    async def at_desk(self, work: Callable[[], T]) -> T:
        """Do something with the gallery. What was begun is ended, whoever still waits for it."""
        return await _awaited(self._clerk.submit(work))

    def close(self) -> None:
        """End all that was begun, then close the gallery."""
        self._decoders.shutdown()
        self.batcher.close()
        self._clerk.shutdown()
        self.desk.close()

    async def _features(self, uploads: Sequence[Upload]) -> Tensor:
        preprocessing, pixels = self.embedder.preprocessing, self.limits.pixels
        prepared = await _awaited(self._decoders.submit(lambda: prepare(uploads, preprocessing, pixels)))
        return await asyncio.wrap_future(self.batcher.submit(prepared))


async def read(field: str, files: Sequence[UploadFile]) -> list[Upload]:
    """Return the files of one field of a form; of several the second is called ``field 2``."""
    return [Upload(f"{field} {i + 1}" if i else field, await file.read()) for i, file in enumerate(files)]


async def _awaited(future: "Future[T]") -> T:
    return await asyncio.wrap_future(future)
