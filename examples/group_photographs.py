"""Group pictures by identity without labels, name a group and add more pictures; the group keeps its name."""

import tempfile

import torch

from hypersphere.evaluation import clustering
from hypersphere.recognition import Album, calibrate_features


def draw(people: int, each: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return synthetic features in place of those of an embedder, and the identity of each."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(people).repeat_interleave(each)
    centers = torch.randn(people, 64, generator=generator)
    return centers[labels] + 0.6 * torch.randn(len(labels), 64, generator=generator), labels


calibration = calibrate_features(*draw(people=100, each=4, seed=1))  # labeled pictures of other people
features, labels = draw(people=30, each=10, seed=2)
half = torch.arange(len(labels)) % 2 == 0
with tempfile.TemporaryDirectory() as folder, Album(f"{folder}/family.album") as album:
    first = album.add_features(features[half], [f"first/{i}.jpg" for i in range(int(half.sum()))])
    album.group(calibration)
    ada = album.name(album.groups()[0].id, "Ada")
    print(f"{len(album.groups())} groups; Ada has {len(album.members(ada))} pictures")
    second = album.add_features(features[~half], [f"second/{i}.jpg" for i in range(int((~half).sum()))])
    album.group(calibration)
    print(f"{len(album.groups())} groups; Ada has {len(album.members(ada))} pictures")
    group = {sample.id: -1 if sample.group is None else sample.group for sample in album.samples()}
    found = torch.tensor([group[i] for i in first + second])
print(clustering(torch.cat([labels[half], labels[~half]]), found))
