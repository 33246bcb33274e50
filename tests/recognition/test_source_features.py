import numpy as np
import pytest
import torch

from hypersphere.data import CorruptDataError
from hypersphere.data.sources import open_source
from hypersphere.recognition import source_features
from tests.distributed import run
from tests.recognition.drawn import draw_folder, picture, small_embedder


def test_features_are_those_of_the_files_one_by_one(tmp_path):
    source = open_source(draw_folder(tmp_path, 3, 3))
    features = source_features(small_embedder(), source, batch=4)
    wanted = torch.cat([small_embedder()(record.name) for record in source.records])
    torch.testing.assert_close(features, wanted)
    torch.testing.assert_close(source_features(small_embedder(), source, batch=100, workers=0), wanted)


def worker(rank):
    labels = np.arange(7) % 3
    images = np.stack([picture(int(label), i) for i, label in enumerate(labels)])
    one = open_source((images[:2], labels[:2]))  # fewer pictures than batches of two processes need
    return {
        "all": source_features(small_embedder(), open_source((images, labels)), batch=2),
        "few": source_features(small_embedder(), one),
        "alone": small_embedder()(list(images)),
    }


def test_processes_share_the_work():
    for result in run(worker):
        torch.testing.assert_close(result["all"], result["alone"])
        torch.testing.assert_close(result["few"], result["alone"][:2])


def test_a_bad_picture_is_named(tmp_path):
    folder = draw_folder(tmp_path, 2, 2)
    (folder / "person1" / "person1_0001.png").write_text("no picture")
    with pytest.raises(CorruptDataError, match=r"person1_0001\.png"):
        source_features(small_embedder(), open_source(folder))


def test_refuses(tmp_path):
    with pytest.raises(ValueError, match="batch must be an integer ≥ 1"):
        source_features(small_embedder(), open_source(draw_folder(tmp_path, 2, 2)), batch=0)
