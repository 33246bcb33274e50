import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from hypersphere.data import PicturePreprocessing
from hypersphere.recognition import Embedder, Gallery, embed, learn_map, migrate, rekey
from hypersphere.recognition.migration import measure_loss


class Projection(nn.Module):
    """Multiplies pixels by a fixed random matrix. Two projections see the same pictures in different bases."""

    def __init__(self, seed, dim):
        super().__init__()
        torch.manual_seed(seed)
        self.matrix = nn.Parameter(torch.randn(64, dim))

    def forward(self, x):
        return (x.flatten(1) - 0.5) @ self.matrix


@pytest.fixture(scope="module")
def models():
    return [
        Embedder(Projection(seed, dim), PicturePreprocessing(size=(8, 8), channels=1))
        for seed, dim in ((0, 64), (1, 48))
    ]


def draw_people(folder, count, pictures, seed=0):
    draw = np.random.default_rng(seed)
    for i in range(count):
        center = draw.normal(128, 50, (8, 8))
        (folder / f"p{i:03d}").mkdir(parents=True)
        for j in range(pictures):
            pixels = (center + draw.normal(0, 12, (8, 8))).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"p{i:03d}" / f"{i}-{j}.png")
    return folder


@pytest.fixture
def old(tmp_path, models):
    draw_people(tmp_path / "people", 24, 3)
    with Gallery(tmp_path / "old.db", models[0]) as gallery:
        found = embed(models[0], tmp_path / "people")
        gallery.enrol(found.labels, found.features, [str(name) for name in found.files])
        yield gallery


def test_the_map_is_the_best_of_all_orthogonal_ones():
    x = torch.randn(200, 6).double()
    rotation = torch.linalg.qr(torch.randn(6, 6).double()).Q
    y = x @ rotation + 0.1 * torch.randn(200, 6).double()
    mapping = learn_map(x, y)
    found = mapping.rotation
    torch.testing.assert_close(found @ found.T, torch.eye(6).double(), rtol=0, atol=1e-12)

    def error(m):
        centered = nn.functional.normalize(x) - mapping.old_mean
        return (centered @ m - (nn.functional.normalize(y) - mapping.new_mean)).norm()

    for _ in range(50):
        other = torch.linalg.qr(found + 0.05 * torch.randn(6, 6).double()).Q
        other = other * (other * found).sum(0).sign()
        assert error(found) <= error(other) + 1e-9
    assert learn_map(x, y[:, :4]).rotation.shape == (6, 4)


def test_a_mean_that_no_rotation_reaches_is_mapped():
    draw = torch.Generator().manual_seed(0)
    x = nn.functional.normalize(torch.randn(300, 8, generator=draw).double())
    rotation = torch.linalg.qr(torch.randn(8, 8, generator=draw).double()).Q
    offset = torch.zeros(8).double()
    offset[0] = 3.0
    y = x @ rotation + offset
    cosines = nn.functional.cosine_similarity(learn_map(x[:200], y[:200])(x[200:]), y[200:])
    assert cosines.min() > 0.97
    few = learn_map(x[:8], x[:8] @ rotation)
    assert few.new_mean.norm() < (x[:8] @ rotation).mean(0).norm() / 2  # with 8 samples the mean is mostly noise


def test_pictures_are_embedded_again_and_the_old_gallery_stays(old, models, tmp_path):
    scores = torch.linspace(-1, 0.9, 2000)
    old.calibrate(far=0.004, pairs=(scores, torch.arange(2000) % 2 == 0))
    before = old.templates()
    found = migrate(old, models[1], tmp_path / "new.db")
    assert found[:4] == (24, 72, 0, 72)
    assert found.loss is None
    assert [one.by for one in found.calibrations] == ["far"]
    assert torch.equal(old.templates().features, before.features)
    assert old.info().backups == [str(tmp_path / "new.db")]
    right = embed(models[1], tmp_path / "people")
    with Gallery(tmp_path / "new.db", models[1]) as new:
        assert new.list() == old.list()
        assert new.calibrations["far"].rate == 0.004
        assert new.calibrations["far"].threshold != old.calibrations["far"].threshold
        answers = new.identify(right.features)
        assert [answer.best.identity for answer in answers] == list(right.labels)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "new.db", "new.db.features-0", "old.db", "old.db-shm", "old.db-wal", "old.db.features-0", "people",
    ]  # fmt: skip


def test_moved_pictures_are_found_by_their_names(old, models, tmp_path):
    (tmp_path / "people").rename(tmp_path / "moved")
    found = migrate(old, models[1], tmp_path / "new.db", pictures=tmp_path / "moved")
    assert found[1:3] == (72, 0)


def test_missing_pictures_are_mapped_and_the_loss_is_measured(old, models, tmp_path):
    (tmp_path / "people").rename(tmp_path / "hidden")
    with pytest.raises(
        ValueError, match=r"72 of 72 pictures are missing, such as .*too few to learn a map: 8 are needed"
    ):
        migrate(old, models[1], tmp_path / "new.db")
    draw_people(tmp_path / "anybody", 60, 3, seed=1)
    with pytest.raises(ValueError, match="old_model must be given with common"):
        migrate(old, models[1], tmp_path / "new.db", common=tmp_path / "anybody")
    with pytest.raises(ValueError, match="old_model must be the model of"):
        migrate(old, models[1], tmp_path / "new.db", common=tmp_path / "anybody", old_model=models[1])
    found = migrate(old, models[1], tmp_path / "new.db", common=tmp_path / "anybody", old_model=models[0])
    assert found[1:4] == (0, 72, 180)
    assert found.loss.people == 60
    assert found.loss.rank_1 == 1.0
    assert found.loss.rank_1_mapped > 0.5
    with Gallery(tmp_path / "new.db", models[1]) as new:
        right = embed(models[1], tmp_path / "hidden")
        answers = new.identify(right.features, threshold=0.0)
        share = sum(a.best.identity == name for a, name in zip(answers, right.labels, strict=True)) / 72
        assert share == pytest.approx(found.loss.rank_1_mapped, abs=0.25)


def test_a_lossless_map_loses_nothing():
    draw = torch.Generator().manual_seed(0)
    people = torch.arange(40).repeat_interleave(3)
    old = torch.randn(40, 16, generator=draw)[people] + 0.2 * torch.randn(120, 16, generator=draw)
    rotation = torch.linalg.qr(torch.randn(16, 16, generator=draw)).Q
    found = measure_loss(old, old @ rotation, people)
    assert found.tpir_mapped == found.tpir
    assert found.rank_1_mapped == found.rank_1
    assert measure_loss(old[:15], old[:15], people[:15]) is None


def test_nothing_is_replaced_and_a_failure_leaves_nothing(old, models, tmp_path, monkeypatch):
    (tmp_path / "there").write_text("x")
    with pytest.raises(ValueError, match="a migration overwrites nothing"):
        migrate(old, models[1], tmp_path / "there")
    monkeypatch.setattr("hypersphere.recognition.migration.learn_map", None)
    monkeypatch.setattr(Gallery, "check", lambda self: ["broken"])
    with pytest.raises(OSError, match="the new gallery is damaged: broken"):
        migrate(old, models[1], tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_a_copy_with_another_key(old, tmp_path):
    old.reject("p003", torch.ones(64), ["x.png"])
    first, second = bytes(32), bytes([1] * 32)
    assert rekey(old, tmp_path / "a.db", first) == 24
    with Gallery(tmp_path / "a.db", old.fingerprint, key=first) as encrypted:
        assert rekey(encrypted, tmp_path / "b.db", second) == 24
        assert encrypted.list() == old.list()
        assert [e.source for e in encrypted.counterexamples] == ["x.png"]
    with pytest.raises(ValueError, match="the key does not fit"):
        Gallery(tmp_path / "b.db", key=first)
    with Gallery(tmp_path / "b.db", key=second) as changed:
        torch.testing.assert_close(changed.templates().features, old.templates().features, rtol=0, atol=1e-4)
