"""What the service answers, as the OpenAPI description shows it."""

from typing import Literal

from pydantic import BaseModel, Field


class Health(BaseModel):
    """Whether the service works, which model it runs, and whether its gallery can be searched."""

    status: Literal["ok"]
    version: str
    model: str = Field(description="fingerprint of the embedder")
    gallery: Literal["ready", "empty", "not_calibrated", "other_model"]
    key_needed: bool


class Embeddings(BaseModel):
    """Features of images, one row for each, in their order."""

    model: str
    dimension: int
    embeddings: list[list[float]]


class Threshold(BaseModel):
    """The least cosine that is accepted, and the rate of errors that it was calibrated to."""

    value: float
    by: Literal["far", "fpir"] = Field(
        description="far: the share of pairs of different people that are accepted; "
        "fpir: the share of strangers that the whole gallery takes for somebody"
    )
    rate: float


class ComparisonAnswer(BaseModel):
    """The cosine of two images. ``same`` is null while the gallery has no threshold to judge by."""

    score: float
    same: bool | None
    threshold: Threshold | None


class Person(BaseModel):
    """Somebody who is enrolled, with the number of templates."""

    name: str
    templates: int


class Persons(BaseModel):
    """A page of those who are enrolled, in alphabetical order."""

    persons: list[Person]
    next: str | None = Field(description="the name to send as `after` for the next page; null on the last one")


class Removed(BaseModel):
    """Who was removed, and how many templates."""

    name: str
    removed: int


class Candidate(BaseModel):
    """Somebody who is like the picture."""

    name: str
    score: float
    accepted: bool


class Search(BaseModel):
    """Who is on the picture; null is unknown: nobody reaches the threshold."""

    person: str | None
    candidates: list[Candidate]
    threshold: Threshold
    warning: str | None = Field(description="why the calibrated rate no longer holds, if it does not")


class Recognized(BaseModel):
    """A face in a picture, or the whole picture for embedders that do not look for faces, and whose it is."""

    person: str | None = Field(description="null is unknown: nobody reaches the threshold")
    score: float
    probability: float | None = Field(
        description="of being the first candidate, if half of all probes are enrolled; null if not calibrated"
    )
    candidates: list[Candidate]
    box: tuple[float, float, float, float] | None = Field(description="left, top, right, bottom in pixels")
    landmarks: list[tuple[float, float]] | None
    detector_score: float | None
    quality: dict[str, float] | None


class Identified(BaseModel):
    """Everybody on a picture, the largest face first; ``found`` is empty if there is no face."""

    width: int
    height: int
    found: list[Recognized]
    threshold: Threshold | None
    warning: str | None = Field(description="why the calibrated rate no longer holds, if it does not")


class ErrorBody(BaseModel):
    """What went wrong."""

    code: str = Field(description="a word that programs compare")
    message: str = Field(description="a sentence for people")
    request_id: str


class Error(BaseModel):
    """The shape of every error."""

    error: ErrorBody
