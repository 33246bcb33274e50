"""Coverage-guided fuzzing of every reader of foreign files, within limits of time and memory.

A reader must read the file or refuse it with a one-sentence error.

Atheris changes the bytes of small valid files and keeps the changes that reach new lines of the package. Each reader
runs in its own process, because atheris ends the process that it runs in.
"""

import contextlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator

from . import tally as rows
from .tally import Tally

SECONDS = 30  # per reader
SECONDS_PER_FILE, MEBIBYTES = 25, 4096
ROOT = pathlib.Path(__file__).parents[2]
Read = Callable[[bytes], object]


def attack(scale: float) -> Iterator[Tally]:
    """Yield a tally for each reader."""
    for name in READERS:
        if not rows.due("readers", name):
            continue
        tally = Tally("readers", name)
        with tempfile.TemporaryDirectory() as folder:
            _fuzz(tally, name, pathlib.Path(folder), max(3, round(scale * SECONDS)))
        yield tally


def _fuzz(tally: Tally, name: str, folder: pathlib.Path, seconds: int) -> None:
    corpus, crashes = folder / "corpus", folder / "crashes"
    for each in (corpus, crashes):
        each.mkdir()
    for i, content in enumerate(READERS[name][0]()):
        (corpus / str(i)).write_bytes(content)
    command = [sys.executable, "-m", "tests.attack.coverage_fuzzing", name, str(corpus)]
    limits = [f"-max_total_time={seconds}", f"-timeout={SECONDS_PER_FILE}", f"-rss_limit_mb={MEBIBYTES}"]
    options = [*limits, f"-artifact_prefix={crashes}/", "-print_final_stats=1", "-seed=1", "-max_len=65536"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "TMPDIR": str(folder)}
    done = subprocess.run(
        [*command, *options], cwd=ROOT, env=environment, capture_output=True, text=True, errors="replace"
    )
    count = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    tally.conditions = {"seconds": seconds, "limit per file": f"{SECONDS_PER_FILE} s, {MEBIBYTES} MiB"}
    tally.held("read, or refused with a message", int(count[1]) if count else 0)
    found = sorted(path.name for path in crashes.iterdir())
    if found or done.returncode != 0 or not count:
        tally.broke(f"{name}: status {done.returncode}, {found}: {done.stderr[-1200:]}")


def _pictures() -> list[bytes]:
    from .fuzzed_images import _originals

    return [content for _, content in _originals() if _decodes(content)]


def _decodes(content: bytes) -> bool:
    with contextlib.suppress(ValueError):
        return bool(_read_picture(content))
    return False


def _read_picture(content: bytes) -> object:
    from hypersphere.data.images import decode_image

    return decode_image(content, "picture", max_pixels=1 << 20)


def _recordings() -> list[bytes]:
    import numpy as np
    import soundfile

    files = []
    for kind in ("WAV", "FLAC", "OGG", "MP3"):
        file = io.BytesIO()
        soundfile.write(file, np.sin(np.arange(1600) / 5) / 2, 16_000, format=kind)
        files.append(file.getvalue())
    return files


def _read_recording(content: bytes) -> object:
    from hypersphere.data.recordings import decode_recording

    return decode_recording(content, "recording", 1 << 22)


def _embedders() -> list[bytes]:
    from .flipped_bits import _embedder_file

    return [_content_of("embedder.safetensors", _embedder_file)]


def _read_embedder(content: bytes) -> object:
    import hypersphere as hs

    with _file(content, "embedder.safetensors") as path:
        return hs.load(path)


def _trees() -> list[bytes]:
    import torch

    from hypersphere.files import save_tree

    tree = {"a": [1, 2.5, "x", None, True], "b": {"c": torch.arange(6.0).reshape(2, 3)}}
    return [_content_of("tree.safetensors", lambda path: save_tree(tree, path))]


def _read_tree(content: bytes) -> object:
    from hypersphere.files import load_tree

    with _file(content, "tree.safetensors") as path:
        return load_tree(path)


def _configs() -> list[bytes]:
    from hypersphere.recipes import RECIPES
    from hypersphere.training import to_json

    return [to_json(RECIPES["mhe-cifar10"].config()).encode()]


def _read_config(content: bytes) -> object:
    from hypersphere.training import from_json

    return from_json(content.decode("utf-8", "replace"))


def _graphs() -> list[bytes]:
    import onnx
    import torch
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(torch.randn(2, 1, 3, 3, generator=torch.Generator().manual_seed(0)).numpy(), "w")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["y"], ["z"]),
        helper.make_node("Flatten", ["z"], ["out"]),
    ]
    shape = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4, 4])]
    out = [helper.make_tensor_value_info("out", TensorProto.FLOAT, [1, 32])]
    graph = helper.make_graph(nodes, "g", shape, out, [weight])
    return [onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()]


def _read_graph(content: bytes) -> object:
    from hypersphere.models import import_onnx

    with _file(content, "graph.onnx") as path:
        return import_onnx(path, compare=False)


def _arrays() -> list[bytes]:
    import numpy as np

    file = io.BytesIO()
    np.savez(file, images=np.zeros((4, 6, 6), np.uint8), labels=np.arange(4))
    return [file.getvalue()]


def _shards() -> list[bytes]:
    file = io.BytesIO()
    picture = next(content for content in _pictures() if content.startswith(b"\x89PNG"))
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in (("0.png", picture), ("0.cls", b"3"), ("1.png", picture), ("1.json", b'{"label": "ann"}')):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return [file.getvalue()]


def _tables() -> list[bytes]:
    return [
        b"path,label,split,x_1,y_1,x_2,y_2\na.png,ann,train,0,0,4,4\nb.png,bob,test,1,1,3,3\n",
        b"path,label\na.png,ann\nb.png,bob\n",
    ]


def _read_source(ending: str) -> Read:
    def read(content: bytes) -> object:
        from hypersphere.data import open_source

        with _file(content, f"source{ending}") as path:
            for name in "ab":
                (path.parent / f"{name}.png").write_bytes(b"")  # the table reader does not open the pictures
            return len(open_source(path))

    return read


@contextlib.contextmanager
def _file(content: bytes, name: str) -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / name
        path.write_bytes(content)
        yield path


def _content_of(name: str, write: Callable[[pathlib.Path], object]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write(pathlib.Path(folder) / name)
        return (pathlib.Path(folder) / name).read_bytes()


READERS: dict[str, tuple[Callable[[], list[bytes]], Read]] = {
    "pictures": (_pictures, _read_picture),
    "recordings": (_recordings, _read_recording),
    "embedder files": (_embedders, _read_embedder),
    "trees of tensors": (_trees, _read_tree),
    "configurations": (_configs, _read_config),
    "ONNX graphs": (_graphs, _read_graph),
    "arrays": (_arrays, _read_source(".npz")),
    "tar shards": (_shards, _read_source(".tar")),
    "tables": (_tables, _read_source(".csv")),
}


def main() -> None:
    """Fuzz the reader named on the command line; the other arguments are libFuzzer's."""
    import atheris

    name = sys.argv.pop(1)
    valid, read = READERS[name]
    with atheris.instrument_imports(include=["hypersphere.data", "hypersphere.files", "hypersphere.config"]):
        for content in valid():
            read(content)  # imports the dependencies of the reader, and checks that it reads valid files

    def try_one(content: bytes) -> None:
        try:
            read(content)
        except (ValueError, OSError) as error:
            if not str(error):
                raise RuntimeError("a refusal without a word") from error

    atheris.Setup(sys.argv, try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
