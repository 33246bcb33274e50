"""Tests of all sources. The tests of a format inherit them and define how its files are written."""

import pickle

import numpy as np
import torch

from hypersphere.data import Loader, PicturePreprocessing, Source, open_source
from tests.data.files import encoded, random

PIXELS = {f"{who}{i}": random(8, 8, 3, seed=10 * ord(who) + i) for who in "cab" for i in range(2)}
PREPARE = PicturePreprocessing(size=(8, 8))


class SourceContract:
    """``make(folder)`` writes two 8×8 pictures each of c, a and b (``PIXELS``) and returns an argument for ``open_source``."""

    def make(self, folder):
        raise AssertionError

    def test_records_and_classes(self, tmp_path):
        source = open_source(self.make(tmp_path))
        assert isinstance(source, Source)
        assert len(source) == 6
        assert source.classes == ("a", "b", "c")
        assert sorted(source.labels.tolist()) == [0, 0, 1, 1, 2, 2]
        assert [source.classes[i] for i in source.labels.tolist()] == [record.label for record in source.records]
        assert len({record.name for record in source.records}) == 6

    def test_pictures_belong_to_their_labels(self, tmp_path):
        source = open_source(self.make(tmp_path))
        dataset = source.dataset(PREPARE)
        found = {}
        for i in range(len(dataset)):
            picture, label = dataset[i]
            assert picture.dtype == torch.uint8
            found.setdefault(source.classes[label], []).append(picture.permute(1, 2, 0).numpy())
        for name, pictures in found.items():
            for i in range(2):
                assert any(np.array_equal(picture, PIXELS[f"{name}{i}"]) for picture in pictures)
        assert torch.equal(dataset.in_memory().data[3], dataset[3][0])

    def test_a_part_has_its_own_classes(self, tmp_path):
        source = open_source(self.make(tmp_path))
        part = source.part((source.labels > 0).nonzero().flatten())
        assert part.classes == ("b", "c")
        assert part.labels.tolist() == (source.labels[source.labels > 0] - 1).tolist()
        assert torch.equal(part.load(1, PREPARE), source.load(int((source.labels > 0).nonzero()[1]), PREPARE))
        kept = source.part((source.labels > 0).nonzero().flatten(), classes=source.classes)
        assert kept.classes == source.classes

    def test_a_source_can_be_pickled(self, tmp_path):
        dataset = open_source(self.make(tmp_path)).dataset(PREPARE)
        again = pickle.loads(pickle.dumps(dataset))
        assert torch.equal(again[5][0], dataset[5][0])

    def test_it_is_loaded_in_batches(self, tmp_path):
        dataset = open_source(self.make(tmp_path)).dataset(PREPARE)
        seen = torch.cat([labels for _, labels in Loader(dataset, 4, seed=1)])
        assert sorted(seen.tolist()) == [0, 0, 1, 1, 2, 2]

    def test_all_samples_are_readable(self, tmp_path):
        source = open_source(self.make(tmp_path))
        assert source.drop_unreadable() == (source, {})


def png(name):
    return encoded(PIXELS[name])
