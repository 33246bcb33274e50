"""Tiny-ImageNet: 200 ImageNet classes, small enough to be held in memory."""

import re
from collections import Counter

import numpy as np
import torch

from .images import fit, to_array
from .in_memory import InMemory
from .roots import Root, find

_TRAIN = re.compile(r"(?:^|/)train/([^/]+)/images/[^/]+\.JPEG$")
_VALID = re.compile(r"(?:^|/)val/images/([^/]+\.JPEG)$")


class TinyImageNet(InMemory):
    """100,000 training (``train``) or 10,000 validation images, uint8 (n, 3, s, s), s = 64, or 32 in the reduced set.

    A class is a WordNet number such as ``n01443537``, in sorted order; ``size`` resizes. Test images carry no labels and are left out.
    Read from ``tiny_imagenet/tiny-imagenet-200.zip`` (packed or not) or ``tiny_imagenet_32/tiny_imagenet_200_32x32_train_val.tar.xz``
    below a data root.
    """

    def __init__(self, root: Root = None, train: bool = True, size: int | None = None):
        folder = find("tiny_imagenet", root)
        source = folder.file("tiny-imagenet-200.zip", "tiny_imagenet_200_32x32_train_val.tar.xz", "tiny-imagenet-200/")
        wanted = _TRAIN if train else _VALID
        images, lists = {}, {}
        for name, content in folder.walk(
            source, lambda name: name.endswith(("wnids.txt", "val_annotations.txt")) or bool(wanted.search(name))
        ):
            if name.endswith(".txt"):
                lists[name.rpartition("/")[2]] = content.decode("utf-8", "replace").split("\n")
            else:
                images[name] = to_array(fit(folder.decode(content, f"{source}: {name}"), size=size))
        shapes = Counter(image.shape[1:] for image in images.values())
        rarest = min(shapes, key=shapes.__getitem__, default=None)
        if len(shapes) != 1:
            odd = next((name for name, image in images.items() if image.shape[1:] == rarest), "no image")
            raise folder.corrupt(
                source, f"{odd} in images of sizes {sorted(shapes)}", "images of one size in train/ and val/"
            )
        missing = {"wnids.txt"} | (set() if train else {"val_annotations.txt"})
        if missing - lists.keys():
            raise folder.corrupt(
                source, f"no {', '.join(sorted(missing - lists.keys()))}", "the lists of classes and annotations"
            )
        classes = sorted(line.strip() for line in lists["wnids.txt"] if line.strip())
        number = {name: i for i, name in enumerate(classes)}
        owner = dict(line.split("\t")[:2] for line in lists.get("val_annotations.txt", ()) if line.count("\t") >= 1)
        names = sorted(images)
        keys = [str(wanted.search(name)[1]) for name in names]  # type: ignore[index]
        labels = [number.get(key if train else owner.get(key, ""), -1) for key in keys]
        if -1 in labels:
            raise folder.corrupt(
                source, f"{names[labels.index(-1)]} without a class", "every image annotated with a class of wnids.txt"
            )
        super().__init__(torch.from_numpy(np.stack([images[name] for name in names])), torch.tensor(labels), classes)
