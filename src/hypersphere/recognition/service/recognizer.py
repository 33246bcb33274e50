"""The work behind the routes, in threads: decoding, embedding, and reading and changing the gallery."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import torch
from fastapi import UploadFile
from jaxtyping import Float
from torch import Tensor

from ...data.images import is_expensive
from ...geometry import cosine
from ...models.network import evaluation_mode
from ..embedder import Embedder
from .batching import Batcher
from .errors import RequestError
from .gallery_access import UNCERTAIN, GalleryAccess, State
from .limits import Limits
from .uploads import Photograph, Upload, find_all, prepare

T = TypeVar("T")
HEALTH_SECONDS = 1.0
DECODERS = 2  # threads for small images, which take milliseconds each
SLOW_DECODERS = 1  # threads for images that may be expensive; they never delay small ones


class Recognizer:
    """An embedder and a gallery, used by many requests at once.

    Args:
        embedder: Computes the features.
        gallery: The file of a gallery, or ``postgresql://…``.
        limits: Limits per request and per client.
        key: Key of an encrypted gallery: 32 bytes or a key file; the default is the variable ``HYPERSPHERE_GALLERY_KEY``.
        window: Seconds that an image waits for others to be embedded with.

    >>> import tempfile
    >>> network = hs.config.call(hs.models.mlp, num_classes=None, input_size=4, hidden=(16,))
    >>> embedder = Embedder(network.build(), hs.data.PicturePreprocessing(size=(4, 4), channels=1), network)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     recognizer = Recognizer(embedder, f"{folder}/people.db", Limits(images=4))
    ...     recognizer.batcher.submit([torch.zeros(1, 1, 4, 4, dtype=torch.uint8)]).result().shape
    ...     recognizer.close()
    torch.Size([1, 16])
    """

    def __init__(
        self,
        embedder: Embedder,
        gallery: str | Path,
        limits: Limits | None = None,
        *,
        key: bytes | str | Path | None = None,
        window: float = 0.002,
    ):
        self.embedder, self.limits = embedder, limits or Limits()
        self.gallery = GalleryAccess(gallery, embedder.fingerprint, key)
        self.batcher = Batcher(self._embed, window)
        self._decoders = ThreadPoolExecutor(DECODERS, "decoder")
        self._slow_decoders = ThreadPoolExecutor(SLOW_DECODERS, "slow-decoder")
        # Changes may wait for the lock of another writer. Reading has its own connection and thread, so it never waits.
        self.writable_gallery = GalleryAccess(gallery, embedder.fingerprint, key)
        self._reader, self._writer = ThreadPoolExecutor(1, "gallery-reader"), ThreadPoolExecutor(1, "gallery-writer")
        self._last_state: State | None = None

    async def features(self, uploads: Sequence[Upload]) -> Float[Tensor, "n d"]:
        """Return the features of uploaded images. If they take too long, the request gets an error 503."""
        if not uploads or len(uploads) > self.limits.images:
            message = f"a request must contain 1 to {self.limits.images} images, got {len(uploads)}"
            raise RequestError(413 if uploads else 422, "wrong_number_of_images", message)
        return _check_finite(await self._in_time(self._features(uploads)))

    async def find(self, upload: Upload) -> tuple[Photograph, Float[Tensor, "n d"]]:
        """Return everything found in an uploaded picture, such as all faces, with a feature for each."""
        photograph, features = await self._in_time(self._find(upload))
        return photograph, _check_finite(features)

    async def _in_time(self, work: Awaitable[T]) -> T:
        try:
            return await asyncio.wait_for(work, self.limits.answer_seconds)
        except asyncio.TimeoutError:
            message = f"no features within {self.limits.answer_seconds:g} s: the service is busy; try again later"
            raise RequestError(503, "timeout", message, {"Retry-After": "5"}) from None

    def warm_up(self) -> None:
        """Decode and embed one sample, so that missing packages are reported at start and the first request is not slower."""
        preprocessing = self.embedder.preprocessing
        try:
            prepared = prepare([Upload("image", preprocessing.encode_example())], preprocessing, self.limits)
        except RequestError:  # this preprocessing cannot use the example
            prepared = [preprocessing.draw_stored(1, torch.Generator().manual_seed(0))]
        features = self.batcher.submit(prepared).result()
        cosine(features, features)

    async def read_gallery(self, work: Callable[[], T]) -> T:
        """Read from ``gallery``. Never waits for a change."""
        return await _await_future(self._reader.submit(work))

    async def change_gallery(self, work: Callable[[], T]) -> T:
        """Change ``writable_gallery``. A change that has started is completed even if the caller is canceled."""
        try:
            return await asyncio.wait_for(_await_future(self._writer.submit(work)), self.limits.answer_seconds)
        except asyncio.TimeoutError:
            raise RequestError(503, "uncertain", UNCERTAIN, {"Retry-After": "5"}) from None

    async def gallery_state(self) -> State:
        """Return the state of the gallery, the last known one if reading takes longer than ``HEALTH_SECONDS``.

        Raises:
            RequestError: If the gallery cannot be used, or there is no known state and reading takes too long.
        """
        try:
            state = await asyncio.wait_for(self.read_gallery(self.gallery.state), HEALTH_SECONDS)
        except asyncio.TimeoutError:
            if self._last_state is None:
                message = "the gallery does not answer at the moment"
                raise RequestError(503, "gallery_unavailable", message, {"Retry-After": "5"}) from None
            return self._last_state
        self._last_state = state
        return state

    def close(self) -> None:
        """Close the gallery after the work in progress."""
        self._decoders.shutdown(cancel_futures=True)
        self._slow_decoders.shutdown(cancel_futures=True)
        self.batcher.close()
        self._writer.shutdown()
        self._reader.shutdown(cancel_futures=True)
        self.gallery.close()
        self.writable_gallery.close()

    def _embed(self, samples: Sequence[Tensor]) -> Tensor:
        with torch.no_grad(), evaluation_mode(self.embedder.network):
            return self.embedder.of_windows(samples)

    def _choose_pool(self, uploads: Sequence[Upload]) -> ThreadPoolExecutor:
        """Return the threads that decode these uploads: large pictures must not delay small ones."""
        return self._slow_decoders if any(is_expensive(upload.content) for upload in uploads) else self._decoders

    async def _features(self, uploads: Sequence[Upload]) -> Tensor:
        preprocessing, limits = self.embedder.preprocessing, self.limits
        prepared = await _await_future(
            self._choose_pool(uploads).submit(lambda: prepare(uploads, preprocessing, limits))
        )
        return await asyncio.wrap_future(self.batcher.submit(prepared))

    async def _find(self, upload: Upload) -> tuple[Photograph, Tensor]:
        preprocessing, limits = self.embedder.preprocessing, self.limits
        photograph = await _await_future(
            self._choose_pool([upload]).submit(lambda: find_all(upload, preprocessing, limits))
        )
        if not photograph.found:
            return photograph, torch.empty(0, 0)
        tensors = [one.windows(preprocessing.shape) for one in photograph.found]
        return photograph, await asyncio.wrap_future(self.batcher.submit(tensors))


async def read_uploads(field: str, files: Sequence[UploadFile]) -> list[Upload]:
    """Return the uploaded files of a form field. Messages call the second file ``field 2``."""
    return [Upload(f"{field} {i + 1}" if i else field, await file.read()) for i, file in enumerate(files)]


def _check_finite(features: Tensor) -> Tensor:
    """Return the features. Raise an error if one is not finite, because JSON has no infinity and there is no cosine."""
    if not bool(features.isfinite().all()):
        raise RequestError(422, "no_features", "the model computes no finite features for an image")
    return features


async def _await_future(future: "Future[T]") -> T:
    return await asyncio.wrap_future(future)
