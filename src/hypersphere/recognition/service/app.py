"""The routes of the recognition service."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import FastAPI, File, Form, Query, UploadFile
from torch import Tensor

from ... import __version__
from ...geometry import cosine
from ..calibration import Calibration
from ..gallery_results import Identification
from .base_app import create_base_app
from .bearer_keys import BearerKeys
from .errors import RequestError
from .recognizer import Recognizer, read_uploads
from .schemas import (
    Candidate,
    ComparisonAnswer,
    Embeddings,
    Health,
    Identified,
    Person,
    Persons,
    Recognized,
    Removed,
    Search,
    Threshold,
)
from .uploads import Upload

Image = Annotated[UploadFile, File()]
Images = Annotated[list[UploadFile], File(description="one or more images")]
MAX_PERSONS_PER_PAGE = 1000


def create_app(recognizer: Recognizer, keys: BearerKeys | None = None) -> FastAPI:
    """Return the recognition service as an ASGI application, which closes the recognizer when the server stops.

    Args:
        recognizer: The embedder and the gallery.
        keys: The accepted keys. Without keys, only requests from this machine are answered.

    >>> import tempfile
    >>> network = hs.config.call(hs.models.mlp, num_classes=None, input_size=4, hidden=(16,))
    >>> embedder = hs.recognition.Embedder(network.build(), hs.data.PicturePreprocessing(size=(4, 4), channels=1), network)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     recognizer = Recognizer(embedder, f"{folder}/people.db")
    ...     app = create_app(recognizer, BearerKeys(["correct-horse-battery"]))
    ...     recognizer.close()  # an ASGI server does so when it stops
    >>> "/v1/search" in app.openapi()["paths"]
    True
    """
    keys = keys or BearerKeys()
    app = create_base_app(
        "hypersphere",
        "page.html",
        limits=recognizer.limits,
        keys=keys,
        fingerprint=recognizer.embedder.fingerprint,
        close=recognizer.close,
    )
    _add_pictures(app, recognizer)
    _add_faces(app, recognizer)
    _add_persons(app, recognizer)

    @app.get("/v1/health")
    async def health() -> Health:
        """Return the state of the service and of its gallery. No key is needed."""
        if not recognizer.batcher.alive:
            raise RequestError(503, "stopped", "the service is stopping")
        state = await recognizer.gallery_state()
        fingerprint = recognizer.embedder.fingerprint
        return Health(status="ok", version=__version__, model=fingerprint, gallery=state, key_needed=bool(keys))

    return app


def _add_pictures(app: FastAPI, recognizer: Recognizer) -> None:
    @app.post("/v1/embeddings")
    async def embeddings(image: Images) -> Embeddings:
        """Return the features of images."""
        features = await recognizer.features(await read_uploads("image", image))
        rows = features.tolist()
        return Embeddings(model=recognizer.embedder.fingerprint, dimension=features.shape[1], embeddings=rows)

    @app.post("/v1/compare")
    async def compare(first: Image, second: Image) -> ComparisonAnswer:
        """Compare two images, and return whether they show the same person."""
        uploads = [*await read_uploads("first", [first]), *await read_uploads("second", [second])]
        features = await recognizer.features(uploads)
        score = cosine(features[:1], features[1:]).item()
        found = await recognizer.read_gallery(_read_calibration(recognizer))
        same = None if found is None else score >= found.threshold
        return ComparisonAnswer(score=score, same=same, threshold=_describe_threshold(found))

    @app.post("/v1/search")
    async def search(image: Image, k: Annotated[int, Form(ge=1, le=100)] = 5) -> Search:
        """Find the person on an image among the enrolled people. ``person`` is null for a stranger."""
        features = await recognizer.features(await read_uploads("image", [image]))
        found = await recognizer.read_gallery(lambda: recognizer.gallery.search(features, k))
        candidates = [
            Candidate(name=match.identity, score=match.score, accepted=match.accepted)
            for match in found.answer.candidates
        ]
        threshold = _describe_threshold(found.calibration)
        assert threshold is not None
        return Search(
            person=found.answer.name,
            candidates=candidates,
            threshold=threshold,
            warning=found.warning,
        )


def _add_faces(app: FastAPI, recognizer: Recognizer) -> None:
    @app.post("/v1/identify")
    async def identify(image: Image, k: Annotated[int, Form(ge=1, le=100)] = 1) -> Identified:
        """Find all faces of a photograph among the enrolled people, with a box for each face."""
        (upload,) = await read_uploads("image", [image])
        photograph, features = await recognizer.find(upload)
        width, height = photograph.width, photograph.height
        if not photograph.found:
            return Identified(width=width, height=height, found=[], threshold=None, warning=None)
        answers = await recognizer.read_gallery(lambda: recognizer.gallery.search_all(features, k))
        found = [
            _describe_face(one.answer, prepared.info) for one, prepared in zip(answers, photograph.found, strict=True)
        ]
        threshold = _describe_threshold(answers[0].calibration)
        return Identified(width=width, height=height, found=found, threshold=threshold, warning=answers[0].warning)


def _describe_face(answer: Identification, info: Mapping[str, Any]) -> Recognized:
    candidates = [
        Candidate(name=match.identity, score=match.score, accepted=match.accepted) for match in answer.candidates
    ]
    return Recognized(
        person=answer.name,
        score=answer.best.score,
        probability=answer.best.probability,
        candidates=candidates,
        box=info.get("box"),
        landmarks=info.get("landmarks"),
        detector_score=info.get("score"),
        quality=info.get("quality"),
    )


def _add_persons(app: FastAPI, recognizer: Recognizer) -> None:
    gallery_access = recognizer.writable_gallery

    @app.get("/v1/persons")
    async def persons(
        limit: Annotated[int, Query(ge=1, le=MAX_PERSONS_PER_PAGE)] = MAX_PERSONS_PER_PAGE,
        after: Annotated[str, Query(description="the last name of the previous page")] = "",
    ) -> Persons:
        """List the enrolled people in pages. ``next`` is the ``after`` of the next page, null on the last one."""
        found = await recognizer.read_gallery(lambda: recognizer.gallery.people(after, limit + 1))
        page = [Person(name=name, templates=count) for name, count in found.items()][:limit]
        return Persons(persons=page, next=page[-1].name if len(found) > limit else None)

    @app.post("/v1/persons", status_code=201)
    async def enrol(
        name: Annotated[str, Form()],
        image: Images,
        face: Annotated[
            int | None, Form(ge=0, description="number of the face in the answer of /v1/identify, from 0")
        ] = None,
    ) -> Person:
        """Enroll images of a new or enrolled person. They are on disk when the answer is sent.

        Enrolling the same image again changes nothing. If a photograph shows several faces, ``face`` selects one; by
        default the embedder's preprocessing decides, which for pretrained models takes the largest.
        """
        uploads = await read_uploads("image", image)
        sources = [upload.source for upload in uploads]
        if face is None:
            features = await recognizer.features(uploads)
        else:
            features, sources = await _choose_face(recognizer, uploads, face)
        count = await recognizer.change_gallery(lambda: gallery_access.enrol(name, features, sources))
        return Person(name=name.strip(), templates=count)

    async def remove_person(name: str) -> Removed:
        return Removed(name=name, removed=await recognizer.change_gallery(lambda: gallery_access.remove(name)))

    @app.delete("/v1/persons")
    async def remove(name: Annotated[str, Query()]) -> Removed:
        """Remove a person. Unlike the path, the query accepts every name, such as two dots."""
        return await remove_person(name)

    @app.delete("/v1/persons/{name:path}")
    async def remove_path(name: str) -> Removed:
        """Remove a person."""
        return await remove_person(name)


async def _choose_face(recognizer: Recognizer, uploads: list[Upload], face: int) -> tuple[Tensor, list[str]]:
    if len(uploads) != 1:
        raise RequestError(422, "wrong_number_of_images", f"face needs one image, got {len(uploads)}")
    photograph, features = await recognizer.find(uploads[0])
    if face >= len(photograph.found):
        raise RequestError(
            422, "no_such_face", f"face must be below {len(photograph.found)}, the faces found, got {face}"
        )
    return features[face : face + 1], [f"{uploads[0].source}#face={face}"]


def _read_calibration(recognizer: Recognizer) -> Any:
    """Return a function that reads the calibration for comparing images. A gallery of another model has none."""

    def work() -> Calibration | None:
        return None if recognizer.gallery.state() == "other_model" else recognizer.gallery.verification()

    return work


def _describe_threshold(found: Calibration | None) -> Threshold | None:
    return None if found is None else Threshold(value=found.threshold, by=found.by, rate=found.rate)
