"""The routes of an album: its groups, the most doubtful first, and corrections."""

import asyncio
import base64
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from fastapi import FastAPI, Form, Query
from pydantic import BaseModel, Field

from ... import __version__
from ..album import Album, Group, Sample
from .base_app import create_base_app
from .bearer_keys import BearerKeys
from .errors import RequestError
from .limits import Limits

T = TypeVar("T")
MAX_GROUPS_PER_PAGE = 60
SAMPLES_PER_GROUP = 8  # the least certain ones
MAX_SAMPLES_PER_PAGE = 120
MAX_NAME_CHARACTERS = 200


class AlbumHealth(BaseModel):
    """The state of the service."""

    status: Literal["ok"]
    version: str
    key_needed: bool


class AlbumSample(BaseModel):
    """A sample with its thumbnail as a data URL."""

    id: int
    file: str = Field(description="name of the photograph, without its folder")
    probability: float
    thumbnail: str | None


class AlbumGroup(BaseModel):
    """A group with its least certain samples."""

    id: int
    name: str | None
    size: int
    doubt: float
    similar: int | None
    similar_name: str | None
    similar_probability: float
    samples: list[AlbumSample]


class AlbumGroups(BaseModel):
    """A page of groups, the most doubtful first."""

    groups: list[AlbumGroup]
    total: int
    named: int
    unassigned: int
    names: list[str] = Field(description="names in use, for completion")


class AlbumSamples(BaseModel):
    """A page of samples."""

    samples: list[AlbumSample]
    total: int


class Correction(BaseModel):
    """The result of a correction."""

    action: str | None = Field(description="the change that was made or undone; null if there was nothing to undo")
    group: int | None = None


class AlbumAccess:
    """An album that serves many requests. One thread does all the work, so every answer contains the last correction.

    Args:
        path: The album file.
        limits: Limits per request and per client.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Album(f"{folder}/family.album").close()
    ...     access = AlbumAccess(f"{folder}/family.album")
    ...     asyncio.run(access.run(lambda album: album.groups()))
    ...     access.close()
    []
    """

    def __init__(self, path: str | Path, limits: Limits | None = None):
        self.limits = limits or Limits()
        self.album = Album(path, create=False)
        self._worker = ThreadPoolExecutor(1, "album")

    async def run(self, work: Callable[[Album], T]) -> T:
        """Run work with the album. A correction that has started is completed even if the caller is canceled."""
        future = self._worker.submit(work, self.album)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self.limits.answer_seconds)
        except asyncio.TimeoutError:
            message = "the album is busy: check whether the correction was made before you send it again"
            raise RequestError(503, "uncertain", message, {"Retry-After": "5"}) from None
        except ValueError as error:
            raise RequestError(422, "refused", str(error)) from error
        except OSError as error:
            message = "the album cannot be used at the moment"
            raise RequestError(503, "album_unavailable", message, {"Retry-After": "5"}) from error

    def close(self) -> None:
        """Close the album after the work in progress."""
        self._worker.shutdown()
        self.album.close()


def create_album_app(access: AlbumAccess, keys: BearerKeys | None = None) -> FastAPI:
    """Return the review of an album as an ASGI application, which closes the album when the server stops.

    Args:
        access: The album.
        keys: The accepted keys. Without keys, only requests from this machine are answered.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Album(f"{folder}/family.album").close()
    ...     access = AlbumAccess(f"{folder}/family.album")
    ...     app = create_album_app(access)
    ...     access.close()  # an ASGI server does so when it stops
    >>> "/v1/album/groups" in app.openapi()["paths"]
    True
    """
    keys = keys or BearerKeys()
    app = create_base_app(
        "hypersphere album",
        "album.html",
        limits=access.limits,
        keys=keys,
        fingerprint=access.album.fingerprint or "none",
        close=access.close,
    )

    @app.get("/v1/health")
    async def health() -> AlbumHealth:
        """Return the state of the service. No key is needed."""
        return AlbumHealth(status="ok", version=__version__, key_needed=bool(keys))

    _add_reading(app, access)
    _add_corrections(app, access)
    return app


def _add_reading(app: FastAPI, access: AlbumAccess) -> None:
    @app.get("/v1/album/groups")
    async def groups(
        start: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_GROUPS_PER_PAGE)] = 12,
    ) -> AlbumGroups:
        """List the groups, the most doubtful first, each with its least certain samples."""

        def work(album: Album) -> AlbumGroups:
            found = album.groups()
            names = {group.id: group.name for group in found}
            return AlbumGroups(
                groups=[_describe_group(album, one, names) for one in found[start : start + limit]],
                total=len(found),
                named=sum(name is not None for name in names.values()),
                unassigned=len(album.unassigned()),
                names=sorted(name for name in names.values() if name is not None),
            )

        return await access.run(work)

    @app.get("/v1/album/groups/{group}")
    async def members(
        group: int,
        start: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_SAMPLES_PER_PAGE)] = MAX_SAMPLES_PER_PAGE,
    ) -> AlbumSamples:
        """List the samples of a group, the least certain first."""
        return await access.run(lambda album: _describe_samples(album, album.members(group), start, limit))

    @app.get("/v1/album/unassigned")
    async def unassigned(
        start: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_SAMPLES_PER_PAGE)] = MAX_SAMPLES_PER_PAGE,
    ) -> AlbumSamples:
        """List the samples that are in no group."""
        return await access.run(lambda album: _describe_samples(album, album.unassigned(), start, limit))


def _add_corrections(app: FastAPI, access: AlbumAccess) -> None:
    @app.post("/v1/album/name")
    async def name(
        group: Annotated[int, Form()], name: Annotated[str, Form(max_length=MAX_NAME_CHARACTERS)] = ""
    ) -> Correction:
        """Name a group. If another group has the name, the two are merged. An empty name removes the name."""
        kept = await access.run(lambda album: album.name(group, name.strip() or None))
        return Correction(action="named", group=kept)

    @app.post("/v1/album/confirm")
    async def confirm(group: Annotated[int, Form()]) -> Correction:
        """Confirm that a group is correct."""
        await access.run(lambda album: album.confirm(group))
        return Correction(action="confirmed", group=group)

    @app.post("/v1/album/merge")
    async def merge(group: Annotated[list[int], Form()]) -> Correction:
        """Merge groups that show one person."""
        return Correction(action="merged", group=await access.run(lambda album: album.merge(group)))

    @app.post("/v1/album/split")
    async def split(sample: Annotated[list[int], Form()]) -> Correction:
        """Move some samples of a group into a new group."""
        return Correction(action="split", group=await access.run(lambda album: album.split(sample)))

    @app.post("/v1/album/reject")
    async def reject(sample: Annotated[list[int], Form()]) -> Correction:
        """Remove samples that do not show the person of their group."""

        def work(album: Album) -> None:
            for one in sample:
                album.reject(one)

        await access.run(work)
        return Correction(action="rejected")

    @app.post("/v1/album/undo")
    async def undo() -> Correction:
        """Undo the last change."""
        return Correction(action=await access.run(lambda album: album.undo()))


def _describe_group(album: Album, group: Group, names: dict[int, str | None]) -> AlbumGroup:
    samples = [_describe_sample(album, sample) for sample in album.members(group.id)[:SAMPLES_PER_GROUP]]
    other = None if group.similar is None else names.get(group.similar)
    return AlbumGroup(**group._asdict(), similar_name=other, samples=samples)


def _describe_samples(album: Album, found: list[Sample], start: int, limit: int) -> AlbumSamples:
    return AlbumSamples(
        samples=[_describe_sample(album, one) for one in found[start : start + limit]], total=len(found)
    )


def _describe_sample(album: Album, sample: Sample) -> AlbumSample:
    """Return a sample with its thumbnail, because separate thumbnails would need one request per face."""
    values: dict[str, Any] = {"id": sample.id, "file": Path(sample.path).name, "probability": sample.probability}
    try:
        content = album.thumbnail(sample.id).read_bytes()
    except OSError:  # the user deleted it, or the sample is a recording
        return AlbumSample(**values, thumbnail=None)
    return AlbumSample(**values, thumbnail=f"data:image/jpeg;base64,{base64.b64encode(content).decode()}")
