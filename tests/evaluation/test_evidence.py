"""Files of evidence, the choice of samples, and thumbnails."""

import dataclasses

import pytest
import torch

from hypersphere.evaluation import Evidence, choose_samples, thumbnails

KEPT = Evidence(
    torch.randn(4, 3),
    torch.tensor([0, 1, 1, 0]),
    ["a", "<b>"],
    9,
    torch.zeros(4, 2, 2, 1, dtype=torch.uint8),
    list("wxyz"),
)


def test_a_file_contains_all_fields(tmp_path):
    KEPT.save(tmp_path / "evidence.safetensors")
    assert (tmp_path / "evidence.safetensors").stat().st_mode & 0o777 == 0o600, "features and thumbnails of people"
    again = Evidence.load(tmp_path / "evidence.safetensors")
    for field in dataclasses.fields(Evidence):
        one, other = getattr(KEPT, field.name), getattr(again, field.name)
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_other_files_are_refused(tmp_path):
    from hypersphere.files import save_tree

    save_tree({"format": "other"}, tmp_path / "x")
    with pytest.raises(ValueError, match="not a file of format hypersphere-evidence/1"):
        Evidence.load(tmp_path / "x")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": torch.zeros(3, dtype=torch.long)}, "labels must have one entry for each of 4"),
        ({"labels": torch.full((4,), 2)}, "labels must index the 2 classes"),
        ({"features": torch.full((4, 3), torch.nan)}, "features must be finite"),
        ({"names": ["a"]}, "names must have one entry"),
    ],
)
def test_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(KEPT, **change)


def test_classes_are_whole():
    labels = torch.arange(3000) % 150
    chosen = choose_samples(labels, most=500, per_class=40)
    counts = torch.bincount(labels[chosen])
    assert set(counts[counts > 0].tolist()) == {20}
    assert 480 <= len(chosen) <= 500
    assert torch.equal(chosen, chosen.unique())


def test_large_classes_get_equal_shares():
    chosen = choose_samples(torch.arange(10_000) % 10, most=2000)
    assert torch.bincount(chosen % 10).tolist() == [200] * 10
    assert len(choose_samples(torch.zeros(5000, dtype=torch.long), most=100)) == 100


def test_thumbnails_keep_bytes_and_stretch_floats():
    bytes_ = torch.randint(0, 256, (3, 1, 8, 8)).to(torch.uint8)
    assert torch.equal(thumbnails(bytes_)[..., 0], bytes_[:, 0])
    floats = thumbnails(torch.linspace(-2, 3, 64).view(1, 1, 8, 8))
    assert int(floats.min()) == 0
    assert int(floats.max()) == 255
    assert thumbnails(torch.zeros(5, 9)) is None
    assert thumbnails(torch.zeros(5, 2, 8, 8)) is None


def test_thumbnails_respect_the_limit():
    made = thumbnails(torch.zeros(100, 3, 90, 60, dtype=torch.uint8), limit=100_000)
    assert made.numel() <= 110_000
    assert made.shape[1] > made.shape[2]
