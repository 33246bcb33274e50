"""The answers of the service as pydantic models, from which the OpenAPI description is generated."""

from typing import Literal

from pydantic import BaseModel, Field


class Health(BaseModel):
    """The state of the service, its model, and the state of its gallery."""

    status: Literal["ok"]
    version: str
    model: str = Field(description="fingerprint of the embedder")
    gallery: Literal["ready", "empty", "not_calibrated", "other_model"]
    key_needed: bool


class Embeddings(BaseModel):
    """The features of images, one row per image, in the order of the images."""

    model: str
    dimension: int
    embeddings: list[list[float]]


class Threshold(BaseModel):
    """The lowest accepted cosine, and the error rate that it was calibrated for."""

    value: float
    by: Literal["far", "fpir"] = Field(
        description="far: share of accepted pairs of different people; "
        "fpir: share of strangers identified as an enrolled person"
    )
    rate: float


class ComparisonAnswer(BaseModel):
    """The cosine of two images. ``same`` is null if the gallery has no threshold."""

    score: float
    same: bool | None
    threshold: Threshold | None


class Person(BaseModel):
    """An enrolled person with the number of templates."""

    name: str
    templates: int


class Persons(BaseModel):
    """A page of the list of enrolled people, in alphabetical order."""

    persons: list[Person]
    next: str | None = Field(description="the name to send as `after` for the next page; null on the last one")


class Removed(BaseModel):
    """The removed person and the number of removed templates."""

    name: str
    removed: int


class Candidate(BaseModel):
    """An enrolled person similar to the picture."""

    name: str
    score: float
    accepted: bool


class Search(BaseModel):
    """The person on the picture, null if nobody reaches the threshold."""

    person: str | None
    candidates: list[Candidate]
    threshold: Threshold
    warning: str | None = Field(description="why the calibrated rate does not hold; null if it does")


class Recognized(BaseModel):
    """A face in a picture, or the whole picture if the embedder does not detect faces, with the recognized person."""

    person: str | None = Field(description="null if nobody reaches the threshold")
    score: float
    probability: float | None = Field(
        description="probability of the first candidate if half of all probes are enrolled; null if not calibrated"
    )
    candidates: list[Candidate]
    box: tuple[float, float, float, float] | None = Field(description="left, top, right, bottom in pixels")
    landmarks: list[tuple[float, float]] | None
    detector_score: float | None
    quality: dict[str, float] | None


class Identified(BaseModel):
    """All people on a picture, the largest face first; ``found`` is empty if there is no face."""

    width: int
    height: int
    found: list[Recognized]
    threshold: Threshold | None
    warning: str | None = Field(description="why the calibrated rate does not hold; null if it does")


class ErrorBody(BaseModel):
    """The content of an error."""

    code: str = Field(description="a word for programs, which never changes")
    message: str = Field(description="a sentence for people")
    request_id: str


class Error(BaseModel):
    """An error answer."""

    error: ErrorBody
