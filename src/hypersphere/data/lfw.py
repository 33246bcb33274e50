"""Labeled Faces in the Wild: faces, the pairs of its two views, and its folds of people."""

import re
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from .archived_pictures import read_archived_pictures
from .catalog import LFW_LISTS
from .errors import CorruptDataError, MissingDataError
from .images import crop_and_resize, to_array
from .in_memory import InMemory
from .roots import Root, find_folder
from .verification_pairs import Pairs

_IMAGE = re.compile(r"(?:^|/)([^/]+)/\1_(\d{4})\.jpg$")


class LFW(InMemory):
    """13,233 faces of 5,749 people, uint8 (n, 3, 128, 128): rows and columns 64 … 191 of the 250×250 deep-funneled images.

    ``crop`` keeps the center (112 shows little more than the face), and ``size`` resizes. Classes are people. Read from ``lfw/`` below a
    data root: ``lfw_deepfunneled_crop128.tar.xz``, or the authors' ``lfw-deepfunneled.tgz`` (packed or not) with its lists beside it.

    >>> faces = LFW(crop=112)  # doctest: +SKIP
    >>> faces.data.shape, len(faces.classes), len(faces.pairs())  # doctest: +SKIP
    (torch.Size([13233, 3, 112, 112]), 5749, 6000)
    """

    def __init__(self, root: Root = None, crop: int | None = None, size: int | None = None):
        folder = find_folder("lfw", root)
        source = folder.get_file("lfw_deepfunneled_crop128.tar.xz", "lfw-deepfunneled.tgz", "lfw-deepfunneled/")
        self._folder, self._where = folder, str(source)

        def prepare(name: str, content: bytes) -> UInt8[np.ndarray, "c h w"]:
            image = folder.decode(content, f"{source}: {name}")
            if image.size == (250, 250):
                image = image.crop((64, 64, 192, 192))
            if image.size != (128, 128):
                found = f"an image of {image.height}×{image.width}"
                raise folder.make_corrupt_error(f"{source}: {name}", found, "250×250, or 128×128 already cropped")
            return to_array(crop_and_resize(image, crop, size))

        layout = "<name>/<name>_<number>.jpg"
        names, data, self._lists = read_archived_pictures(
            folder, source, _IMAGE, prepare, ["LFW", crop, size], layout, LFW_LISTS
        )
        for name in LFW_LISTS:
            beside = folder.find_file(name)
            if beside is not None:
                self._lists[name] = beside.read_bytes()
        keys = [(found[1], int(found[2])) for found in map(_IMAGE.search, names) if found]
        order = sorted(range(len(keys)), key=keys.__getitem__)  # by person; file names are sorted slightly differently
        data, keys = data[order], [keys[i] for i in order]
        self._index = {key: i for i, key in enumerate(keys)}
        people, labels = np.unique([name for name, _ in keys], return_inverse=True)
        super().__init__(data, torch.from_numpy(labels), people.tolist())

    def pairs(self, view: Literal["folds", "train", "test"] = "folds") -> Pairs:
        """Return the pairs of view 2 (10 folds of 300 + 300, used for reported results) or view 1's ``train`` or ``test`` pairs."""
        name = {"folds": "pairs.txt", "train": "pairsDevTrain.txt", "test": "pairsDevTest.txt"}[view]
        lines = self._read_lines(name)
        try:
            header = [int(number) for number in lines[0]]
            folds, each = header if len(header) == 2 else (1, *header)
        except (ValueError, IndexError) as error:
            raise self._make_corrupt_error(name, "no header", "the number of folds and of pairs in each") from error
        if len(lines) != 1 + 2 * folds * each:
            raise self._make_corrupt_error(
                name, f"{len(lines) - 1} pairs", f"{2 * folds * each} for {folds} folds of {each} + {each}"
            )
        both = [
            (self._find_image(name, x[0], x[1]), self._find_image(name, x[-2] if len(x) == 4 else x[0], x[-1]))
            for x in lines[1:]
        ]
        first, second = torch.tensor(both, dtype=torch.long).reshape(-1, 2).T
        same = torch.tensor([len(x) == 3 for x in lines[1:]], dtype=torch.bool)
        return Pairs(first, second, same, torch.arange(folds).repeat_interleave(2 * each))

    def people(self) -> Int[Tensor, "n"]:
        """Return the fold 0 … 9 of each image's person in view 2 (``people.txt``), −1 for people in no fold."""
        lines, fold = self._read_lines("people.txt"), torch.full((len(self.classes),), -1)
        number = {name: i for i, name in enumerate(self.classes)}
        try:
            start = 1  # line with the number of people in the fold
            for current in range(int(lines[0][0])):
                count = int(lines[start][0])
                for name, _ in lines[start + 1 : start + 1 + count]:
                    fold[number[name]] = current
                start += 1 + count
            if start != len(lines):
                raise ValueError(f"{len(lines) - start} lines too many or too few")
        except (ValueError, IndexError, KeyError) as error:
            raise self._make_corrupt_error(
                "people.txt", f"{type(error).__name__}: {error}", "folds of names, each after its count"
            ) from error
        return fold[self.labels]

    def _read_lines(self, name: str) -> list[list[str]]:
        if name not in self._lists:
            raise MissingDataError(f"{name} is neither in {self._where} nor beside it; {self._folder.entry.remedy}")
        return [line.split("\t") for line in self._lists[name].decode("utf-8", "replace").splitlines() if line.strip()]

    def _find_image(self, where: str, name: str, number: str) -> int:
        try:
            return self._index[name, int(number)]
        except (KeyError, ValueError) as error:
            raise self._make_corrupt_error(where, f"image {number!r} of {name!r}", "a face of the dataset") from error

    def _make_corrupt_error(self, name: str, found: str, expected: str) -> CorruptDataError:
        return self._folder.make_corrupt_error(f"{self._where}: {name}", found, expected)
