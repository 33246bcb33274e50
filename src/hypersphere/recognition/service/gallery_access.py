"""The gallery of a service. It is opened on first use, and every failure becomes an HTTP error."""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from jaxtyping import Float
from torch import Tensor

from ..calibration import Calibration
from ..gallery import Gallery, check_templates
from ..gallery_results import Identification
from ..stores import UncertainCommitError, is_server, normalize_name
from .errors import RequestError

T = TypeVar("T")
log = logging.getLogger("hypersphere.service")
MAX_NAME_CHARACTERS = 200
REPLACED = "the file of the gallery was moved or replaced while the service was running: restart the service"
UNCERTAIN = (
    "it is not known whether the change was made: send the request again. This is safe: the same picture is enrolled only "
    "once, and removing an unknown person is an error 404"
)
State = Literal["ready", "empty", "not_calibrated", "other_model"]


class Found(NamedTuple):
    """The candidates of a probe, the calibration of their threshold, and its warning."""

    answer: Identification
    calibration: Calibration
    warning: str | None


class GalleryAccess:
    """Access to the gallery at ``location``: enroll, remove, list and search. The first enrollment creates it.

    Args:
        location: A file, or ``postgresql://…``.
        fingerprint: The fingerprint of the model. Every call on a gallery of another model is an error 409.
        key: Key of an encrypted gallery, as :class:`~hypersphere.recognition.Gallery` takes it.

    >>> import tempfile
    >>> gallery_access = GalleryAccess(tempfile.mkdtemp() + "/people.db", "model 1")
    >>> gallery_access.enrol("ada", torch.tensor([[1.0, 0.0]]), ["1.png"]), gallery_access.people(), gallery_access.state()
    (1, {'ada': 1}, 'not_calibrated')
    >>> gallery_access.close()
    """

    def __init__(self, location: str | Path, fingerprint: str, key: bytes | str | Path | None = None):
        self.location, self.fingerprint, self._key = str(location), fingerprint, key
        self._gallery: Gallery | None = None
        self._file: tuple[int, int] | None = None  # device and inode of the opened file
        self._lock = threading.RLock()  # a method may make several calls to the gallery

    def state(self) -> State:
        """Return whether the gallery can be searched, and if not, why."""
        try:
            return self._run(_read_state)
        except RequestError as error:
            if error.code == "model_mismatch":
                return "other_model"
            if error.code == "gallery_empty":
                return "empty"
            raise

    def people(self, after: str = "", limit: int | None = None) -> dict[str, int]:
        """Return the number of templates of each person after ``after``, in alphabetical order."""
        return {} if self._is_missing() else self._run(lambda gallery: gallery.list(after, limit))

    def verification(self) -> Calibration | None:
        """Return the calibration by FAR, which judges pairs of pictures; None if there is none."""
        return None if self._is_missing() else self._run(lambda gallery: gallery.calibrations.get("far"))

    def enrol(self, name: str, features: Float[Tensor, "n d"], sources: Sequence[str]) -> int:
        """Add templates and return how many the person has now. They are on disk when this returns."""
        identity = _check_name(name)
        try:
            check_templates(features)  # before a gallery is created for them
        except ValueError as error:
            raise RequestError(422, "unusable_features", str(error)) from error

        def work(gallery: Gallery) -> int:
            gallery.enrol(identity, features, sources)
            return gallery.count(identity)

        return self._run(work, create=True)

    def remove(self, name: str) -> int:
        """Remove a person and return the number of removed templates. An unknown person is a 404."""
        identity = _check_name(name)
        unknown = RequestError(404, "unknown_person", "nobody of this name is enrolled")
        if self._is_missing():
            raise unknown

        def work(gallery: Gallery) -> int:
            if identity not in gallery:
                raise unknown
            return gallery.remove(identity)

        return self._run(work)

    def search(self, features: Float[Tensor, "1 d"], k: int) -> Found:
        """Return the ``k`` most similar people. Nobody is accepted below the calibrated threshold."""
        return self.search_all(features, k)[0]

    def search_all(self, features: Float[Tensor, "n d"], k: int) -> list[Found]:
        """Return the ``k`` most similar people of each feature."""

        def work(gallery: Gallery) -> list[Found]:
            if not len(gallery):
                raise _make_empty_error()
            calibration = _find_calibration(gallery)
            if calibration is None:
                raise RequestError(409, "not_calibrated", _explain_calibration(self.location))
            warning = calibration.warning(len(gallery))
            answers = gallery.identify(features, k, calibration.threshold)
            return [Found(answer, calibration, warning) for answer in answers]

        return self._run(work)

    def close(self) -> None:
        """Close the gallery."""
        with self._lock:
            if self._gallery is not None:
                self._gallery.close()
                self._gallery = None

    def _run(self, work: Callable[[Gallery], T], create: bool = False) -> T:
        with self._lock:
            try:
                if self._gallery is None:
                    self._gallery = self._open_gallery(create)
                    self._file = self._identify_file()
            except (OSError, ValueError) as error:
                raise _make_unavailable_error(error) from error
            if self._file != self._identify_file():
                raise RequestError(503, "gallery_replaced", REPLACED)  # a change of the old file would be lost
            try:
                return work(self._gallery)
            except UncertainCommitError as error:
                log.error("a commit is uncertain: %s", error)
                raise RequestError(503, "uncertain", UNCERTAIN, {"Retry-After": "5"}) from error
            except OSError as error:
                raise _make_unavailable_error(error) from error
            except ValueError as error:  # a network may compute NaN or only zeros
                raise RequestError(422, "unusable_features", str(error)) from error

    def _open_gallery(self, create: bool) -> Gallery:
        if self._is_missing():
            if not create:
                raise _make_empty_error()
        else:
            with Gallery(self.location, create=False, key=self._key) as found:
                if found.fingerprint != self.fingerprint:
                    stored = "an unknown model" if found.fingerprint is None else f"model {found.fingerprint[:12]}"
                    message = (
                        f"the gallery holds features of {stored}, the service runs model {self.fingerprint[:12]}: "
                        "serve the gallery with its own model, or enroll everybody in a new gallery"
                    )
                    raise RequestError(409, "model_mismatch", message)
        return Gallery(self.location, self.fingerprint, create=create, key=self._key)

    def _identify_file(self) -> tuple[int, int] | None:
        if is_server(self.location):
            return None
        try:
            found = Path(self.location).stat()
        except OSError:
            return (-1, -1)
        return found.st_dev, found.st_ino

    def _is_missing(self) -> bool:
        return self._gallery is None and not is_server(self.location) and not Path(self.location).exists()


def _read_state(gallery: Gallery) -> State:
    if not len(gallery):
        return "empty"
    return "not_calibrated" if _find_calibration(gallery) is None else "ready"


def _find_calibration(gallery: Gallery) -> Calibration | None:
    """Return the calibration for searching: by FPIR, or else by FAR."""
    stored = gallery.calibrations
    return stored.get("fpir", stored.get("far"))


def _check_name(name: str) -> str:
    if len(name) > MAX_NAME_CHARACTERS:
        raise RequestError(
            422, "bad_name", f"a name must have at most {MAX_NAME_CHARACTERS} characters, got {len(name)}"
        )
    try:
        return normalize_name(name.strip())
    except ValueError as error:
        raise RequestError(422, "bad_name", str(error)) from error


def _make_empty_error() -> RequestError:
    return RequestError(409, "gallery_empty", "the gallery is empty: enroll someone first with POST /v1/persons")


def _make_unavailable_error(error: Exception) -> RequestError:
    log.error("the gallery cannot be used: %s", error)  # clients must not learn the location of the file
    return RequestError(503, "gallery_unavailable", "the gallery cannot be used at the moment", {"Retry-After": "5"})


def _explain_calibration(location: str) -> str:
    name = "GALLERY" if is_server(location) else Path(location).name
    return (
        "the gallery has no threshold yet, so strangers could not be rejected: run "
        f"`hypersphere gallery calibrate {name} EMBEDDER strangers/ --fpir 0.01` with pictures of people who are "
        "neither enrolled nor in the training set; the service can keep running"
    )
