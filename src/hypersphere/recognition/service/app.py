"""The routes of the service, with their OpenAPI description."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, File, Form, Query, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from ... import __version__
from ...geometry import cosine
from ..calibrating import Calibration
from .answers import Candidate, ComparisonAnswer, Embeddings, Error, Health, Person, Persons, Removed, Search, Threshold
from .bearer_keys import BearerKeys
from .engine import Engine, read
from .guard import Guard
from .page import page
from .refusals import Refusal, answer_http, answer_invalid

Image = Annotated[UploadFile, File()]
Images = Annotated[list[UploadFile], File(description="one or more images")]
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Error} for status in (400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503)
}


def create_app(engine: Engine, keys: BearerKeys | None = None) -> FastAPI:
    """Return the application, which closes the engine when the server stops.

    Args:
        engine: The embedder and the gallery.
        keys: Who may ask. Without keys everybody who reaches this machine by a loopback address.

    >>> import tempfile
    >>> network = hs.config.call(hs.models.mlp, num_classes=None, input_size=4, hidden=(16,))
    >>> embedder = hs.recognition.Embedder(network.build(), hs.data.Preprocessing(size=(4, 4), channels=1), network)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     engine = Engine(embedder, f"{folder}/people.db")
    ...     app = create_app(engine, BearerKeys(["correct-horse-battery"]))
    ...     engine.close()  # an ASGI server does so when it stops
    >>> "/v1/search" in app.openapi()["paths"]
    True
    """
    keys = keys or BearerKeys()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        engine.close()

    app = FastAPI(
        title="hypersphere",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        responses=ERRORS,
    )
    app.add_exception_handler(HTTPException, answer_http)
    app.add_exception_handler(RequestValidationError, answer_invalid)
    app.add_middleware(Guard, limits=engine.limits, keys=keys, fingerprint=engine.embedder.fingerprint)
    _add_pictures(app, engine)
    _add_persons(app, engine)
    content, headers = page()

    @app.get("/", include_in_schema=False)
    async def show() -> HTMLResponse:
        return HTMLResponse(content, headers=headers)

    @app.get("/v1/health")
    async def health() -> Health:
        """Say whether the service works. No key is needed."""
        if not engine.batcher.alive:
            raise Refusal(503, "stopped", "the service is stopping")
        state = await engine.at_desk(engine.desk.state)
        fingerprint = engine.embedder.fingerprint
        return Health(status="ok", version=__version__, model=fingerprint, gallery=state, key_needed=bool(keys))

    return app


def _add_pictures(app: FastAPI, engine: Engine) -> None:
    @app.post("/v1/embeddings")
    async def embeddings(image: Images) -> Embeddings:
        """Return the features of images."""
        features = await engine.features(await read("image", image))
        rows = features.tolist()
        return Embeddings(model=engine.embedder.fingerprint, dimension=features.shape[1], embeddings=rows)

    @app.post("/v1/compare")
    async def compare(first: Image, second: Image) -> ComparisonAnswer:
        """Compare two images: is it the same person?"""
        uploads = [*await read("first", [first]), *await read("second", [second])]
        features = await engine.features(uploads)
        score = cosine(features[:1], features[1:]).item()
        found = await engine.at_desk(_calibration(engine))
        same = None if found is None else score >= found.threshold
        return ComparisonAnswer(score=score, same=same, threshold=_threshold(found))

    @app.post("/v1/search")
    async def search(image: Image, k: Annotated[int, Form(ge=1, le=100)] = 5) -> Search:
        """Find who is on an image among everybody who is enrolled, or nobody: ``person`` is null for a stranger."""
        features = await engine.features(await read("image", [image]))
        found = await engine.at_desk(lambda: engine.desk.search(features, k))
        candidates = [
            Candidate(name=match.identity, score=match.score, accepted=match.accepted) for match in found.matches
        ]
        best = candidates[0]
        threshold = _threshold(found.calibration)
        assert threshold is not None
        return Search(
            person=best.name if best.accepted else None,
            candidates=candidates,
            threshold=threshold,
            warning=found.warning,
        )


def _add_persons(app: FastAPI, engine: Engine) -> None:
    desk = engine.desk

    @app.get("/v1/persons")
    async def persons() -> Persons:
        """List who is enrolled."""
        found = await engine.at_desk(desk.people)
        return Persons(persons=[Person(name=name, templates=count) for name, count in found.items()])

    @app.post("/v1/persons", status_code=201)
    async def enrol(name: Annotated[str, Form()], image: Images) -> Person:
        """Enrol images of a person, new or known. On disk when this is answered; the same image again changes nothing."""
        uploads = await read("image", image)
        features = await engine.features(uploads)
        sources = [upload.source for upload in uploads]
        count = await engine.at_desk(lambda: desk.enrol(name, features, sources))
        return Person(name=name.strip(), templates=count)

    async def removed(name: str) -> Removed:
        return Removed(name=name, removed=await engine.at_desk(lambda: desk.remove(name)))

    @app.delete("/v1/persons")
    async def remove(name: Annotated[str, Query()]) -> Removed:
        """Remove a person; any name can be given here, also one that no path can hold, such as two dots."""
        return await removed(name)

    @app.delete("/v1/persons/{name:path}")
    async def remove_path(name: str) -> Removed:
        """Remove a person."""
        return await removed(name)


def _calibration(engine: Engine) -> Any:
    """The calibration as a piece of work; a gallery of another model has none for these features."""

    def work() -> Calibration | None:
        return None if engine.desk.state() == "other_model" else engine.desk.calibration()

    return work


def _threshold(found: Calibration | None) -> Threshold | None:
    return None if found is None else Threshold(value=found.threshold, by=found.by, rate=found.rate)
