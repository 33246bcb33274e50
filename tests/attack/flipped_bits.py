"""Files with one flipped bit: each is refused, or its content is exactly what was written."""

import pathlib
import random
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import tally as rows
from .children import each
from .tally import Tally

FLIPS = 520
BATCH = 20
Reader = Callable[[pathlib.Path], Any]


def attack(scale: float) -> Iterator[Tally]:
    """Yield a tally for each kind of file."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for index, (name, prepare) in enumerate(KINDS.items()):
        if not rows.due("bit flips", name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            files, read = prepare(pathlib.Path(folder))
            yield _flips(Tally("bit flips", name), round(scale * FLIPS), files, read, pathlib.Path(folder), 70 + index)


def _flips(tally: Tally, count: int, files: list[pathlib.Path], read: Reader, folder: pathlib.Path, seed: int) -> Tally:
    draw = random.Random(seed)
    contents = {file: file.read_bytes() for file in files}
    right = read(folder)
    places = []
    for number in range(count):
        file = files[number % len(files)]
        size = len(contents[file])
        # Half of the flips hit the header, which describes the file.
        at = draw.randrange(min(size, 2048)) if draw.random() < 0.5 else draw.randrange(size)
        places.append((file, at, draw.randrange(8)))
    tally.conditions = {"files": {file.name: len(content) for file, content in contents.items()}}
    batches = [places[i : i + BATCH] for i in range(0, count, BATCH)]

    def work(batch: list[tuple[pathlib.Path, int, int]]) -> dict[str, Any]:
        return {"answers": [_flip(contents, place, read, folder, right) for place in batch]}

    for batch, answer in each(batches, work):
        if "died" in answer:
            tally.broke(f"a reader died by {answer['died']}, one of {[(f.name, at, bit) for f, at, bit in batch]}")
        for outcome, (file, at, bit) in zip(answer.get("answers", []), batch, strict=False):
            good = outcome in ("refused", "unchanged")
            tally.check(good, f"bit {bit} of byte {at} of {file.name}: {outcome}", outcome)
    return tally


def _flip(contents: dict[pathlib.Path, bytes], place: Any, read: Reader, folder: pathlib.Path, right: Any) -> str:
    file, at, bit = place
    for path, content in contents.items():
        changed = bytearray(content)
        if path == file:
            changed[at] ^= 1 << bit
        path.write_bytes(changed)
    for beside in folder.glob("*-wal"), folder.glob("*-shm"), folder.glob("*-journal"):
        for path in beside:
            path.unlink()
    try:
        found = read(folder)
    except (ValueError, OSError):
        return "refused"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:300]
    return "unchanged" if _equal(found, right) else "other content, silently"


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(_equal(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def _checkpoint(folder: pathlib.Path) -> tuple[list[pathlib.Path], Reader]:
    from hypersphere.files import load_tree, save_tree

    file = folder / "last.safetensors"
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Linear(8, 3))
    state = {"step": 3, "task": model.state_dict(), "random": [torch.get_rng_state()], "measured": {"accuracy": 9.5}}
    save_tree({**state, "optimizers": [{"lr": 0.1, "momentum": torch.randn(8, 6)}]}, file)
    return [file], lambda _: load_tree(file)


def _embedder_file(path: pathlib.Path) -> Any:
    from hypersphere import models
    from hypersphere.config import call
    from hypersphere.data import PicturePreprocessing
    from hypersphere.recognition import Embedder

    made = call(models.cnn3, table="E.3", width=0.1, in_channels=1, num_classes=None, input_size=(16, 16))
    prepared = PicturePreprocessing(size=(16, 16), channels=1, mean=0.5, std=0.5)
    embedder = Embedder(made.build(), prepared, made)
    embedder.save(path)
    return embedder


def _embedder(folder: pathlib.Path) -> tuple[list[pathlib.Path], Reader]:
    from hypersphere.recognition import Embedder

    file = folder / "embedder.safetensors"
    _embedder_file(file)

    def read(_: pathlib.Path) -> Any:
        found = Embedder.load(file)
        return {**found.network.state_dict(), "fingerprint": found.fingerprint, "description": found.description()}

    return [file], read


def _model(folder: pathlib.Path) -> tuple[list[pathlib.Path], Reader]:
    from hypersphere.files import save_tensors
    from hypersphere.training import load_weights

    file = folder / "model.safetensors"
    save_tensors(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)).state_dict(), file)
    return [file], lambda _: load_weights(file)


def _features(folder: pathlib.Path) -> tuple[list[pathlib.Path], Reader]:
    from hypersphere.recognition import Features
    from hypersphere.recognition.features import load_features, save_features

    file = folder / "features.safetensors"
    save_features(Features(torch.randn(20, 8), [f"{i}.png" for i in range(20)], "f" * 64), file)

    def read(_: pathlib.Path) -> Any:
        found = load_features(file)
        return [found.features, list(found.files), found.fingerprint]

    return [file], read


def _gallery(folder: pathlib.Path) -> tuple[list[pathlib.Path], Reader]:
    from hypersphere.recognition import Gallery

    address, probes = folder / "people.db", torch.randn(5, 16)
    with Gallery(address) as gallery:
        for i in range(6):
            gallery.enrol(f"person {i}", torch.randn(3, 16), [f"{i} {k}.png" for k in range(3)])
        gallery.calibrate(far=0.05, pairs=(torch.linspace(-1, 1, 200), torch.arange(200) > 150))

    def read(_: pathlib.Path) -> Any:
        with Gallery(address, create=False) as gallery:
            found = gallery.identify(probes, k=3)
            return (
                [[list(match) for match in row] for row in found],
                gallery.list(),
                list(gallery.verify("person 2", probes)),
            )

    return sorted(
        path for path in folder.iterdir() if path.is_file() and not path.name.endswith(("-wal", "-shm"))
    ), read


def _adapters(folder: pathlib.Path) -> tuple[list[pathlib.Path], Reader]:
    from hypersphere.orthogonal import finetune, load_adapters, save_adapters

    base = torch.nn.Sequential(
        torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)
    )
    start = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    tuned = finetune(base, "oft", block=4)
    with torch.no_grad():
        for parameter in tuned.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    file = folder / "adapters.safetensors"
    save_adapters(tuned, file)

    def read(_: pathlib.Path) -> Any:
        plain = torch.nn.Sequential(
            torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)
        )
        plain.load_state_dict(start)
        load_adapters(plain, file)
        return plain(torch.linspace(-1, 1, 32).reshape(2, 16)).detach()

    return [file], read


def _decoded(folder: pathlib.Path) -> tuple[list[pathlib.Path], Reader]:
    import numpy as np

    from hypersphere.data.decoded_cache import DecodedCache, write_cache

    file = folder / "decoded.safetensors"
    pixels = np.random.default_rng(0).integers(0, 256, (12, 3, 6, 6), dtype=np.uint8)
    write_cache(file, pixels.shape, torch.arange(12) % 3, ("a", "b", "c"), [pixels])

    def read(_: pathlib.Path) -> Any:
        found = DecodedCache(file)
        data, labels = found.batch(torch.arange(12))
        return [data, labels, list(found.classes)]

    return [file], read


KINDS = {
    "checkpoint": _checkpoint,
    "embedder": _embedder,
    "model": _model,
    "features": _features,
    "gallery": _gallery,
    "adapters": _adapters,
    "decoded pictures": _decoded,
}
