import os
import stat

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

from hypersphere.data import CorruptDataError
from hypersphere.data.sources import open_source
from hypersphere.recognition import Features, all_processes, embed, load_features, save_features
from hypersphere.recognition.features import FORMAT
from tests.distributed import run
from tests.recognition.drawn import draw_folder, picture
from tests.recognition.drawn import small_embedder as drawn_embedder

from .small_networks import COLUMNS, ROWS, small_embedder


def write(path, pixels, **options):
    path.parent.mkdir(exist_ok=True, parents=True)
    Image.fromarray(pixels).save(path, **options)
    return path


@pytest.fixture
def folder(tmp_path):
    generator = np.random.default_rng(0)
    for name in ("b/2.png", "b/1.PNG", "a/x.bmp", "a/deep/y.png"):
        write(tmp_path / "images" / name, generator.integers(0, 256, (9, 7), dtype=np.uint8))
    (tmp_path / "images" / "a" / "notes.txt").write_text("no image")
    return tmp_path / "images"


@pytest.fixture
def embedder():
    return small_embedder()


def test_pixels_come_as_they_are(embedder, tmp_path):
    pixels = np.random.default_rng(1).integers(0, 256, (ROWS, COLUMNS), dtype=np.uint8)
    features = embed(embedder, [write(tmp_path / "i.png", pixels)]).features
    x = (torch.from_numpy(pixels).float()[None, None] - 127.5) / 128
    torch.testing.assert_close(features, embedder.network(x).detach())


def test_other_sizes_modes_and_rotations_are_brought_to_the_embedders(embedder, tmp_path):
    pixels = np.zeros((2 * ROWS, 2 * COLUMNS, 4), dtype=np.uint8)
    pixels[:ROWS] = 255
    upright = write(tmp_path / "rgba.png", pixels)
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated camera: the top of the scene is at the right of the stored picture
    turned = write(tmp_path / "turned.png", np.rot90(pixels[..., 0]), exif=exif)
    flat = write(tmp_path / "flat.png", pixels[..., 0])
    features = embed(embedder, [flat, turned, upright]).features
    assert torch.equal(features[0], features[1])
    assert features.shape == (3, 5)


def test_features_do_not_depend_on_batches(embedder, folder):
    one, all_at_once = embed(embedder, [folder], batch=1), embed(embedder, [folder])
    torch.testing.assert_close(one.features, all_at_once.features)
    assert one.files == all_at_once.files
    assert len(one.files) == len(one.features) == 4
    assert torch.equal(one.features[2:3], embedder(one.files[2]))
    assert one.fingerprint == embedder.fingerprint
    assert one.skipped == {}


def test_a_file_of_features_comes_back(embedder, folder, tmp_path):
    features = embed(embedder, [folder])
    save_features(features, tmp_path / "f.safetensors")
    again = load_features(tmp_path / "f.safetensors")
    assert isinstance(again, Features)
    assert torch.equal(again.features, features.features)
    assert again[1:4] == features[1:4]
    save_features(features, tmp_path / "f.npy")
    assert np.array_equal(np.load(tmp_path / "f.npy"), features.features.numpy())
    assert {path.name for path in tmp_path.iterdir()} == {"images", "f.safetensors", "f.npy"}


def test_what_cannot_be_read_is_named(embedder, folder, tmp_path):
    whole = folder / "b" / "2.png"
    contents = {"text.png": b"no image", "cut.png": whole.read_bytes()[:60]}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CorruptDataError, match=name):
            embed(embedder, [tmp_path / name])
    paths = [tmp_path / "text.png", whole, tmp_path / "cut.png"]
    features = embed(embedder, paths, on_error="skip")
    assert features.files == [str(whole)]
    assert list(features.skipped) == [str(tmp_path / name) for name in contents]
    assert all("image" in reason and file not in reason for file, reason in features.skipped.items())
    assert torch.equal(features.features, embedder(whole))
    with pytest.raises(ValueError, match=r"none of 1 samples of .*text\.png can be used"):
        embed(embedder, paths[:1], on_error="skip")


def test_refuses(embedder, folder, tmp_path):
    with pytest.raises(ValueError, match="batch must be an integer ≥ 1"):
        embed(embedder, [folder], batch=0)
    with pytest.raises(ValueError, match="at least one image"):
        embed(embedder, [])
    safetensors.torch.save_file({"features": torch.ones(1, 1)}, tmp_path / "x")
    with pytest.raises(ValueError, match=f"must be a file of format {FORMAT}, got format none"):
        load_features(tmp_path / "x")
    safetensors.torch.save_file({"features": torch.ones(1, 1)}, tmp_path / "x", {FORMAT: '{"content": {}}'})
    with pytest.raises(ValueError, match="is damaged: its checksum does not match its content"):
        load_features(tmp_path / "x")


def divided(group, folder, on_error):
    try:
        return embed(small_embedder(), [folder], batch=2, on_error=on_error, group=group)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_divide_the_files(folder, embedder, pool, processes):
    write(folder / "c" / "z.png", np.full((9, 7), 50, dtype=np.uint8))
    whole = embed(embedder, [folder])
    for found in pool.run(divided, folder, "raise", processes=processes):
        assert found[1:] == whole[1:]
        torch.testing.assert_close(found.features, whole.features)
    (folder / "b" / "1.PNG").write_text("no picture")
    for found in pool.run(divided, folder, "skip", processes=processes):
        assert found.files == [file for file in whole.files if "1.PNG" not in file]
        assert [str(folder / "b" / "1.PNG")] == list(found.skipped)
    for said in pool.run(divided, folder, "raise", processes=processes):  # also from processes whose files are fine
        assert "1.PNG" in said


def test_features_are_those_of_the_files_one_by_one(tmp_path):
    source = open_source(draw_folder(tmp_path, 3, 3))
    features = embed(drawn_embedder(), source, batch=4).features
    wanted = torch.cat([drawn_embedder()(record.name) for record in source.records])
    torch.testing.assert_close(features, wanted)
    torch.testing.assert_close(embed(drawn_embedder(), source, batch=100, workers=0).features, wanted)


def embed_share(rank):
    labels = np.arange(7) % 3
    images = np.stack([picture(int(label), i) for i, label in enumerate(labels)])
    one = open_source((images[:2], labels[:2]))  # too few pictures for a batch on each of two processes
    return {
        "all": embed(drawn_embedder(), open_source((images, labels)), batch=2, group=all_processes()).features,
        "few": embed(drawn_embedder(), one, group=all_processes()).features,
        "alone": drawn_embedder()(list(images)),
    }


def test_processes_share_the_work():
    for result in run(embed_share):
        torch.testing.assert_close(result["all"], result["alone"])
        torch.testing.assert_close(result["few"], result["alone"][:2])


def test_a_bad_picture_is_named(tmp_path):
    folder = draw_folder(tmp_path, 2, 2)
    (folder / "person1" / "person1_0001.png").write_text("no picture")
    with pytest.raises(CorruptDataError, match=r"person1_0001\.png"):
        embed(drawn_embedder(), open_source(folder))


def divided_source(group, folder):
    try:
        return embed(drawn_embedder(), open_source(folder), group=group).features
    except CorruptDataError as error:
        return str(error)


def test_a_bad_picture_is_named_by_every_process(tmp_path, pool):
    folder = draw_folder(tmp_path, 2, 2)
    (folder / "person1" / "person1_0001.png").write_text("no picture")
    assert all("person1_0001.png" in said for said in pool.run(divided_source, folder, processes=3))


@pytest.mark.parametrize("name", ["features.npy", "features.safetensors"])
def test_files_of_features_are_their_owners_alone(tmp_path, name):
    before = os.umask(0)
    try:
        save_features(Features(torch.eye(2), ["a.png", "b.png"], "3f9c"), tmp_path / name)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
