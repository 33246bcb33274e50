"""Tiny-ImageNet: 200 ImageNet classes, small enough to be held in memory."""

import re

import numpy as np
import torch
from jaxtyping import UInt8

from .archived_pictures import read_archived_pictures
from .images import crop_and_resize, to_array
from .in_memory import InMemory
from .roots import Root, find_folder

_TRAIN = re.compile(r"(?:^|/)train/([^/]+)/images/[^/]+\.JPEG$")
_VALID = re.compile(r"(?:^|/)val/images/([^/]+\.JPEG)$")


class TinyImageNet(InMemory):
    """100,000 training (``train``) or 10,000 validation images, uint8 (n, 3, s, s), s = 64, or 32 in the reduced set.

    Class names are WordNet numbers such as ``n01443537``, in sorted order; ``size`` resizes. Test images have no labels and are not read.
    Read from ``tiny_imagenet/tiny-imagenet-200.zip`` (packed or not) or ``tiny_imagenet_32/tiny_imagenet_200_32x32_train_val.tar.xz``
    below a data root. The decoded images are cached (:func:`read_archived_pictures`).

    >>> images = TinyImageNet(train=False, size=32)  # doctest: +SKIP
    >>> images.data.shape, len(images.classes), images.classes[0]  # doctest: +SKIP
    (torch.Size([10000, 3, 32, 32]), 200, 'n01443537')
    """

    def __init__(self, root: Root = None, train: bool = True, size: int | None = None):
        folder = find_folder("tiny_imagenet", root)
        source = folder.get_file(
            "tiny-imagenet-200.zip", "tiny_imagenet_200_32x32_train_val.tar.xz", "tiny-imagenet-200/"
        )
        pattern = _TRAIN if train else _VALID

        def prepare(name: str, content: bytes) -> UInt8[np.ndarray, "c h w"]:
            return to_array(crop_and_resize(folder.decode(content, f"{source}: {name}"), size=size))

        lists = ("wnids.txt", "val_annotations.txt")
        layout = "train/<class>/images/<name>.JPEG" if train else "val/images/<name>.JPEG"
        names, data, texts = read_archived_pictures(
            folder, source, pattern, prepare, ["TinyImageNet", size], layout, lists
        )
        lines = {name: content.decode("utf-8", "replace").split("\n") for name, content in texts.items()}
        missing = set(lists[:1] if train else lists) - lines.keys()
        if missing:
            raise folder.make_corrupt_error(
                source, f"no {', '.join(sorted(missing))}", "the lists of classes and annotations"
            )
        classes = sorted(line.strip() for line in lines["wnids.txt"] if line.strip())
        number = {name: i for i, name in enumerate(classes)}
        owner = dict(line.split("\t")[:2] for line in lines.get("val_annotations.txt", ()) if line.count("\t") >= 1)
        keys = [str(pattern.search(name)[1]) for name in names]  # type: ignore[index]
        labels = [number.get(key if train else owner.get(key, ""), -1) for key in keys]
        if -1 in labels:
            raise folder.make_corrupt_error(
                source, f"{names[labels.index(-1)]} without a class", "every image annotated with a class of wnids.txt"
            )
        super().__init__(data, torch.tensor(labels), classes)
