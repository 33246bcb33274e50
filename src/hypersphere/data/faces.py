"""Detect the faces in photographs, choose among them, align them by five landmarks, and measure their quality."""

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from ..geometry import faster_convolutions
from ..models.catalog import load_network
from .errors import UnusableSampleError
from .preprocessing import Prepared, Preprocessing, Region, eight_bit_pixels

STRIDES = (8, 16, 32)  # pixels between the cells of YuNet's three output maps
ROUND_TO = 32  # pixels; the sides of the detector's input are multiples of the coarsest stride
MAX_OVERLAP = 0.3  # intersection over union; boxes that overlap more show the same face
MAX_CANDIDATES = 5000  # boxes with the best scores, which non-maximum suppression compares
MAX_FACES = 1000  # per picture
MIN_SIDE = 256  # pixels of the longer side; smaller pictures are enlarged for detection
# The five landmarks of an upright face in 112×112 pixels: eyes, nose, corners of the mouth, from left to right.
TEMPLATE = ((38.2946, 51.6963), (73.5318, 51.5014), (56.0252, 71.7366), (41.5493, 92.3655), (70.7299, 92.2041))


Choose = Literal["largest", "central", "all", "refuse"]
CHOICES: tuple[str, ...] = get_args(Choose)


class FaceError(UnusableSampleError):
    """A picture without a face, or with several faces if exactly one is accepted.

    >>> raise FaceError("wall.png: no face was found")
    Traceback (most recent call last):
    ...
    hypersphere.data.faces.FaceError: wall.png: no face was found
    """


@dataclass(frozen=True)
class Face:
    """A face in a picture, as the detector returns it.

    Args:
        box: (x_1, y_1, x_2, y_2) in pixels of the picture.
        landmarks: Eyes, nose and corners of the mouth as (x, y), from left to right as seen in the picture.
        score: The score of the detector, from 0 to 1.

    >>> Face((0.0, 0.0, 10.0, 20.0), TEMPLATE, 0.9).area
    200.0
    """

    box: tuple[float, float, float, float]
    landmarks: tuple[tuple[float, float], ...]
    score: float

    @property
    def area(self) -> float:
        """Area of the box in pixels."""
        return (self.box[2] - self.box[0]) * (self.box[3] - self.box[1])


@dataclass(frozen=True)
class FacePreprocessing(Preprocessing):
    """Preprocessing of photographs for a face network: detect, choose, align, crop.

    Five landmarks are mapped to ``template`` by the similarity transform with the least squared error (Umeyama, 1991).
    A picture without a face raises :class:`FaceError`.

    Args:
        template: Positions of the landmarks in the input of the network, as (x, y) in pixels.
        size: (height, width) of the input.
        mean: Subtracted from pixels in [0, 1].
        std: Divides the difference. The default 1/255 gives pixels in 0 … 255, which SFace expects.
        choose: Which face to use if there are several: the ``largest``, the most ``central``, ``all`` of them, or
            ``refuse``, which raises :class:`FaceError`. :meth:`load` returns one face, so it treats ``all`` as ``refuse``.
        min_score: The lowest detector score that counts as a face. 0.6 finds all but a few faces of LFW.
        max_side: Pictures with a longer side are reduced to this side for detection. The face is cropped from the full
            picture.
        min_side: Pictures whose longer side is shorter are enlarged to this side for detection, because landmarks are less
            accurate if a face fills a small picture. The default was chosen on view 1 of LFW; see ``docs/log/data.md``.
        detector: The catalog name of the detector.
        mirror: Whether the embedder appends the features of the mirror image.

    >>> FacePreprocessing().shape
    (3, 112, 112)
    """

    template: tuple[tuple[float, float], ...] = TEMPLATE
    size: tuple[int, int] = (112, 112)
    mean: float = 0.0
    std: float = 1 / 255
    choose: Choose = "largest"
    min_score: float = 0.6
    max_side: int = 1024
    min_side: int = MIN_SIDE
    detector: str = "yunet"
    mirror: bool = False
    content: ClassVar[str] = "face"

    def __post_init__(self) -> None:
        points = tuple(tuple(map(float, point)) for point in self.template)
        if len(points) != 5 or any(len(point) != 2 for point in points):
            raise ValueError(f"template must have five points (x, y), got {self.template!r}")
        object.__setattr__(self, "template", points)
        check_choose(self.choose)
        if not 0 < self.min_score < 1:
            raise ValueError(f"min_score must lie between 0 and 1, got {self.min_score}")
        if not all(16 <= side <= 1024 for side in self.size) or not 64 <= self.max_side <= 8192:
            raise ValueError(f"size must lie in 16 … 1024 and max_side in 64 … 8192, got {self.size}, {self.max_side}")
        if not 0 <= self.min_side <= self.max_side:
            raise ValueError(f"min_side must lie in 0 … max_side={self.max_side}, got {self.min_side}")
        if self.std <= 0:
            raise ValueError(f"std must be positive, got {self.std}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one aligned face."""
        return (3, *self.size)

    @property
    def channels(self) -> int:
        """Number of channels of the input."""
        return 3

    def load(self, sample: Any, box: Region | None = None) -> UInt8[Tensor, "3 h w"]:
        """Return the aligned face that ``choose`` selects.

        Args:
            sample: A path, bytes, PIL picture, array or tensor (channels, h, w).
            box: The part of the picture in which faces are detected.

        Raises:
            FaceError: If there is no face, or several and ``choose`` is ``refuse``.
        """
        faces = self.load_all(sample, box, "refuse" if self.choose == "all" else self.choose)
        if not faces:
            raise FaceError(f"no face was found{_format_location(sample)}")
        return faces[0].tensor

    def load_all(self, sample: Any, box: Region | None = None, choose: str = "all") -> list[Prepared]:
        """Return aligned faces, largest first, with ``box``, ``landmarks``, ``score`` and ``quality``.

        Args:
            sample: A path, bytes, PIL picture, array or tensor (channels, h, w).
            box: The part of the picture in which faces are detected.
            choose: ``"all"``, ``"largest"``, ``"central"`` or ``"refuse"``; see the class.

        Returns:
            The chosen faces; none if there is no face. Boxes and landmarks are in pixels of the whole upright picture.

        Raises:
            FaceError: If there are several faces and ``choose`` is ``refuse``.
        """
        check_choose(choose)
        picture = _read_rgb(sample, box)
        faces = sorted(self.detect(picture), key=lambda face: -face.area)
        if choose == "refuse" and len(faces) > 1:
            raise FaceError(
                f"{len(faces)} faces were found{_format_location(sample)}, and choose='refuse' accepts exactly one"
            )
        if choose in ("largest", "central") and faces:
            faces = [choose_face(faces, choose, (picture.shape[1], picture.shape[2]))]
        return [self._prepare(picture, face, (0, 0) if box is None else box[:2]) for face in faces]

    def _prepare(self, picture: UInt8[Tensor, "3 h w"], face: Face, offset: tuple[float, float]) -> Prepared:
        """Align a face and add its properties; ``offset`` is the position of ``picture`` in the whole picture."""
        aligned = align_face(picture, face, self.template, self.size)
        box = tuple(value + offset[i % 2] for i, value in enumerate(face.box))
        landmarks = tuple((x + offset[0], y + offset[1]) for x, y in face.landmarks)
        quality = measure_quality(aligned, face)
        return Prepared(aligned, {"box": box, "landmarks": landmarks, "score": face.score, "quality": quality})

    def normalize(self, stored: Tensor) -> Float[Tensor, "*n c h w"]:
        """Return (x − mean)/std of pixels in [0, 1]; aligned faces are stored in 8 bits."""
        x = stored if stored.is_floating_point() else stored.to(torch.get_default_dtype()) / 255
        return (x - self.mean) / self.std

    def detect(self, picture: UInt8[Tensor, "3 h w"]) -> list[Face]:
        """Return the faces in an RGB picture, best score first."""
        sides = {"max_side": self.max_side, "min_side": self.min_side}
        return detect_faces(picture, min_score=self.min_score, detector=self.detector, **sides)


@torch.no_grad()
def detect_faces(
    picture: UInt8[Tensor, "3 h w"],
    *,
    min_score: float = 0.6,
    max_side: int = 1024,
    min_side: int = MIN_SIDE,
    detector: str = "yunet",
) -> list[Face]:
    """Return the faces in a picture, found by YuNet.

    Args:
        picture: RGB, 8 bits.
        min_score: The lowest score that counts as a face.
        max_side: Pictures with a longer side are reduced to this side first.
        min_side: Pictures whose longer side is shorter are enlarged to this side first.
        detector: The catalog name of the detector.

    Returns:
        The faces, best score first. Of two boxes with an intersection over union above 0.3, only the better is kept.

    >>> detect_faces(picture)[0].score  # doctest: +SKIP
    0.93
    """
    network = _load_detector(detector)
    height, width = picture.shape[1:]
    scale = min(max(1.0, min_side / max(height, width)), max_side / max(height, width))
    x = picture[None].flip(1).float()  # the detector was trained on BGR pixels in 0 … 255
    if scale != 1:
        sides = (max(1, round(height * scale)), max(1, round(width * scale)))
        x = F.interpolate(x, sides, mode="bilinear", antialias=scale < 1)
    rows, columns = x.shape[2:]
    x = F.pad(x, (0, -columns % ROUND_TO, 0, -rows % ROUND_TO))
    with faster_convolutions():
        outputs = network(x.contiguous(memory_format=torch.channels_last))
    boxes, landmarks, scores = _decode(outputs, (x.shape[2], x.shape[3]), min_score)
    best = _suppress(boxes, scores)
    ratio = torch.tensor([width / columns, height / rows])
    boxes, landmarks = boxes[best] * ratio.repeat(2), landmarks[best] * ratio
    return [
        Face(tuple(box), tuple(map(tuple, points)), score)
        for box, points, score in zip(boxes.tolist(), landmarks.tolist(), scores[best].tolist(), strict=True)
    ]


def _decode(outputs: tuple[Tensor, ...], size: tuple[int, int], min_score: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return boxes, landmarks and scores above ``min_score`` from the outputs of YuNet.

    In each of the three output maps, a cell (row, column) predicts the center of the box as an offset in cells, the sides of
    the box as logarithms in units of cells, and the landmarks as offsets in cells. The score is the geometric mean of the
    classification score and the objectness score.
    """
    boxes, landmarks, scores = [], [], []
    for i, stride in enumerate(STRIDES):
        face, object_, box, points = (outputs[i + len(STRIDES) * part][0] for part in range(4))
        score = (face.clamp(0, 1) * object_.clamp(0, 1)).sqrt().flatten()
        chosen = (score >= min_score).nonzero().flatten()
        columns = size[1] // stride
        cell = torch.stack([chosen % columns, chosen // columns], 1).float()
        center, sides = (cell + box[chosen, :2]) * stride, box[chosen, 2:].exp() * stride
        boxes.append(torch.cat([center - sides / 2, center + sides / 2], 1))
        landmarks.append((points[chosen].reshape(-1, 5, 2) + cell[:, None]) * stride)
        scores.append(score[chosen])
    return torch.cat(boxes), torch.cat(landmarks), torch.cat(scores)


def _suppress(boxes: Float[Tensor, "n 4"], scores: Float[Tensor, "n"]) -> list[int]:
    """Return the indices of boxes that overlap no box of a higher score by more than ``MAX_OVERLAP``, best score first."""
    order = scores.argsort(descending=True, stable=True)[:MAX_CANDIDATES]
    boxes = boxes[order]
    area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    is_candidate = torch.ones(len(order), dtype=torch.bool)
    best: list[int] = []
    for i in range(len(order)):
        if is_candidate[i] and len(best) < MAX_FACES:
            best.append(int(order[i]))
            low, high = torch.maximum(boxes[i, :2], boxes[:, :2]), torch.minimum(boxes[i, 2:], boxes[:, 2:])
            intersection = (high - low).clamp(min=0).prod(1)
            is_candidate &= intersection / (area[i] + area - intersection).clamp(min=1e-9) <= MAX_OVERLAP
    return best


def check_choose(choose: str) -> None:
    """Raise a ``ValueError`` unless ``choose`` is a known policy."""
    if choose not in CHOICES:
        raise ValueError(f"choose must be one of {', '.join(CHOICES)}, got {choose!r}")


def choose_face(faces: list[Face], choose: str, size: tuple[int, int]) -> Face:
    """Return the ``largest`` or the most ``central`` of several faces in a picture of this (height, width)."""
    if choose != "central":
        return max(faces, key=lambda face: face.area)
    center = (size[1] / 2, size[0] / 2)
    return min(faces, key=lambda f: math.dist(center, ((f.box[0] + f.box[2]) / 2, (f.box[1] + f.box[3]) / 2)))


def align_face(
    picture: UInt8[Tensor, "3 h w"],
    face: Face,
    template: tuple[tuple[float, float], ...] = TEMPLATE,
    size: tuple[int, int] = (112, 112),
) -> UInt8[Tensor, "3 i j"]:
    """Crop the face so that its landmarks lie on the template.

    Args:
        picture: RGB, 8 bits.
        face: The face, in pixels of the picture.
        template: Positions of the landmarks in the result, as (x, y) in pixels.
        size: (height, width) of the result. Pixels outside the picture are black.

    >>> picture = torch.zeros(3, 200, 200, dtype=torch.uint8)
    >>> align_face(picture, Face((0.0, 0.0, 112.0, 112.0), TEMPLATE, 0.9)).shape
    torch.Size([3, 112, 112])
    """
    # The fit minimizes the squared error in pixels of the result, as in the training of the networks. Its inverse
    # z → a·z + b maps each pixel of the result to its sampling position in the picture. Complex numbers replace 2×2
    # matrices, because ten tensor operations on five points would take longer than the rest of this function.
    a, b = _invert_similarity(*_fit_complex(face.landmarks, template))
    rows, columns = size
    corners = [a * complex(x, y) + b for x in (0, columns - 1) for y in (0, rows - 1)]
    # Only the window around the face is converted to floating point, because photographs are large.
    left, right = _bound_window([z.real for z in corners], picture.shape[2])
    top, bottom = _bound_window([z.imag for z in corners], picture.shape[1])
    window = picture[:, top:bottom, left:right].float()[None]

    def scale(z: complex) -> complex:
        """Convert a distance in pixels to the units of ``grid_sample``, in which the window extends from −1 to 1."""
        return complex(z.real * 2 / (right - left), z.imag * 2 / (bottom - top))

    # The sampling position a·(column + i·row) + b is the sum of a term per column and a term per row.
    steps, first = torch.arange(max(size)), scale(b - complex(left - 0.5, top - 0.5)) - (1 + 1j)
    grid = (steps[:rows] * scale(a * 1j) + first)[:, None] + steps[:columns] * scale(a)
    grid = torch.view_as_real(grid.to(torch.complex64))[None]
    crop = F.grid_sample(window, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return crop[0].round_().clamp_(0, 255).to(torch.uint8)


def _bound_window(positions: list[float], side: int) -> tuple[int, int]:
    """Return the range [first, end) of pixels on an axis that bilinear sampling at these positions reads, never empty."""
    first = min(max(math.floor(min(positions)) - 1, 0), side - 1)
    return first, max(first + 1, min(math.ceil(max(positions)) + 2, side))


def fit_similarity(source: Float[Tensor, "n 2"], target: Float[Tensor, "n 2"]) -> Float[Tensor, "2 3"]:
    """Return the matrix of rotation, scale and translation that maps ``source`` to ``target`` with the least squared error.

    With points as complex numbers the map is z → a z + b, and least squares gives a = Σ conj(s) t / Σ |s|² for centered
    points. This is Umeyama's solution in two dimensions, without reflections.

    >>> square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
    >>> fit_similarity(square.double(), 2 * square.double() + 3).round().abs()
    tensor([[2., 0., 3.],
            [0., 2., 3.]], dtype=torch.float64)
    """
    a, b = _fit_complex(source.tolist(), target.tolist())
    rows = [[a.real, -a.imag, b.real], [a.imag, a.real, b.imag]]
    return torch.tensor(rows, dtype=torch.promote_types(source.dtype, target.dtype))


def _fit_complex(source: Iterable[Iterable[float]], target: Iterable[Iterable[float]]) -> tuple[complex, complex]:
    """Return a and b of the map z → a·z + b of :func:`fit_similarity`."""
    s, t = ([complex(*point) for point in points] for points in (source, target))
    s_mean, t_mean = sum(s) / len(s), sum(t) / len(t)
    norm = max(sum(abs(z - s_mean) ** 2 for z in s), 1e-12)
    a = sum((s_i - s_mean).conjugate() * (t_i - t_mean) for s_i, t_i in zip(s, t, strict=True)) / norm
    return a, t_mean - a * s_mean


def _invert_similarity(a: complex, b: complex) -> tuple[complex, complex]:
    """Return the inverse of z → a·z + b, which is z → (z − b)/a. It is finite even if all landmarks are equal."""
    inverse = a.conjugate() / max(abs(a) ** 2, 1e-12)
    return inverse, -inverse * b


def measure_quality(aligned: UInt8[Tensor, "3 h w"], face: Face) -> dict[str, float]:
    """Measure the quality of a face.

    Args:
        aligned: The aligned face.
        face: The face in its picture.

    Returns:
        ``size``: distance between the eyes in pixels of the picture. ``sharpness``: variance of the Laplacian in the central
        part of the aligned gray face (pixels in 0 … 255). ``yaw``: signed offset of the nose from the midpoint between the
        eyes, along the line through the eyes and relative to their distance; 0 for a frontal face. ``roll``: tilt of this
        line in degrees. ``brightness`` and ``contrast``: mean and standard deviation of the gray face in [0, 1].
    """
    gray = (aligned.float() * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(0)
    kernel = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])[None, None]
    height, width = gray.shape
    # The border is left out: it is black where the crop extends beyond the picture.
    center = gray[height // 4 : height - height // 8, width // 6 : width - width // 6]
    sharpness = F.conv2d(center[None, None], kernel).var()
    landmarks = torch.tensor(face.landmarks)
    eyes = landmarks[1] - landmarks[0]
    distance = eyes.norm().clamp(min=1e-6)
    nose = landmarks[2] - (landmarks[0] + landmarks[1]) / 2
    return {
        "size": float(distance),
        "sharpness": float(sharpness),
        "yaw": float((nose * eyes).sum() / distance**2),
        "roll": math.degrees(math.atan2(float(eyes[1]), float(eyes[0]))),
        "brightness": float(gray.mean() / 255),
        "contrast": float(gray.std() / 255),
    }


@functools.cache
def _load_detector(name: str) -> torch.nn.Module:
    network: Any = load_network(name)
    # Convolutions with one channel per group take half the time in this memory layout.
    detector: torch.nn.Module = network.to(memory_format=torch.channels_last)
    return detector


def _read_rgb(sample: Any, box: Region | None) -> UInt8[Tensor, "3 h w"]:
    pixels = eight_bit_pixels(sample, box)
    if pixels.ndim != 3:
        raise ValueError(f"a photograph must be one picture, got a batch of shape {tuple(pixels.shape)}")
    return pixels.expand(3, -1, -1) if pixels.shape[0] == 1 else pixels[:3]


def _format_location(sample: Any) -> str:
    """Return " in FILE" for a path, otherwise an empty string, because the caller then adds the name of the sample."""
    return f" in {sample}" if isinstance(sample, str) or hasattr(sample, "__fspath__") else ""
