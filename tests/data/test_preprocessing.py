import io
import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from hypersphere.data import CorruptDataError, PicturePreprocessing, Prepared, Preprocessing

from .files import encoded, random

sides = st.integers(1, 40)


@given(sides, sides, st.sampled_from([1, 3]), st.sampled_from([1, 3]))
@settings(max_examples=40)
def test_files_images_arrays_tensors_and_batches_agree(height, width, stored, channels):
    pixels = random(height, width, *([3] if stored == 3 else []))
    prepare = PicturePreprocessing(size=(7, 5), channels=channels, mean=0.3, std=0.2)
    tensor = torch.from_numpy(pixels)[None] if stored == 1 else torch.from_numpy(pixels).permute(2, 0, 1)
    of_pil = prepare(Image.fromarray(pixels))
    assert of_pil.shape == (channels, 7, 5)
    assert torch.equal(of_pil, prepare(pixels))
    assert torch.equal(of_pil, prepare(tensor))
    assert torch.equal(of_pil, prepare(torch.stack([tensor, tensor]))[1])
    assert torch.equal(of_pil, prepare.normalize(prepare.load(tensor)))


def test_a_file_is_its_image(tmp_path):
    pixels = random(9, 8, 3)
    (tmp_path / "a.png").write_bytes(encoded(pixels))
    prepare = PicturePreprocessing(size=(5, 5))
    assert torch.equal(prepare(tmp_path / "a.png"), prepare(pixels))
    assert torch.equal(prepare(str(tmp_path / "a.png")), prepare(pixels))
    (tmp_path / "b.jpg").write_text("text")
    with pytest.raises(CorruptDataError, match=r"b\.jpg"):
        prepare(tmp_path / "b.jpg")


def test_the_orientation_of_an_open_image_is_applied():
    exif = Image.Exif()
    exif[0x0112] = 6
    stream = io.BytesIO()
    Image.fromarray(random(4, 6)).save(stream, "PNG", exif=exif)
    prepare = PicturePreprocessing(size=(6, 4), channels=1)
    turned = prepare.load(Image.open(stream))
    assert np.array_equal(turned[0].numpy(), np.rot90(random(4, 6), -1))


def test_the_formula_in_float64():
    pixels = random(5, 4, 3)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    expected = (pixels.astype(np.float64) / 255 - np.array(mean)) / np.array(std)
    found = PicturePreprocessing(size=(5, 4), mean=mean, std=std)(pixels)
    assert found.dtype == torch.float32
    assert np.abs(found.permute(1, 2, 0).double().numpy() - expected).max() < 1e-6
    faces = PicturePreprocessing(size=(5, 4))(pixels)
    assert torch.allclose(faces, (torch.from_numpy(pixels).permute(2, 0, 1).float() - 127.5) / 128, atol=1e-6)


def test_deep_and_floating_arrays_are_scaled():
    prepare = PicturePreprocessing(size=(1, 2), channels=1)
    for array in (np.array([[0, 65535]], np.uint16), np.array([[0.0, 1.0]]), np.array([[False, True]])):
        assert prepare.load(array).tolist() == [[[0, 255]]]
    assert prepare.load(torch.tensor([[[0.0, 0.5]]])).tolist() == [[[0, 128]]]
    transparent = np.array([[[9, 0], [9, 255]]], np.uint8)
    assert prepare.load(transparent).tolist() == [[[255, 9]]]


def test_crops():
    pixels = torch.from_numpy(random(6, 10))[None]
    same = {"size": (6, 6), "channels": 1}
    assert torch.equal(PicturePreprocessing(**same, crop="square").load(pixels), pixels[:, :, 2:8])
    assert torch.equal(PicturePreprocessing(size=(4, 4), channels=1, crop=4).load(pixels), pixels[:, 1:5, 3:7])
    boxed = PicturePreprocessing(size=(2, 3), channels=1, crop=(1, 2, 4, 4))
    assert torch.equal(boxed.load(pixels), pixels[:, 2:4, 1:4])
    own = PicturePreprocessing(size=(2, 2), channels=1, crop="square").load(pixels, box=(0, 0, 2, 4))
    assert torch.equal(own, pixels[:, 1:3, 0:2])
    with pytest.raises(ValueError, match="the crop box must lie inside the image of 10×6"):
        PicturePreprocessing(crop=(0, 0, 11, 2)).load(pixels)
    with pytest.raises(ValueError, match="crop must be at most 6"):
        PicturePreprocessing(crop=7).load(pixels)


def test_floating_tensors_stay_differentiable():
    prepare = PicturePreprocessing(size=(3, 3), channels=1, resize="contain", fill=0.5)
    images = torch.rand(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(prepare, images)


@given(
    st.builds(
        dict,
        size=st.tuples(st.integers(1, 500), st.integers(1, 500)),
        channels=st.sampled_from([1, 3]),
        mean=st.floats(-2, 2),
        std=st.floats(0.01, 2),
        mirror=st.booleans(),
        crop=st.sampled_from([None, "square", 12, (1, 2, 3, 4)]),
        resize=st.sampled_from(["stretch", "cover", "contain"]),
        interpolation=st.sampled_from(["bilinear", "bicubic", "nearest"]),
        fill=st.floats(0, 1),
    )
)
def test_json_and_back(values):
    prepare = PicturePreprocessing(**values)
    assert Preprocessing.from_dict(json.loads(json.dumps(prepare.to_dict()))) == prepare


def as_json(value):
    """Return a value as JSON may represent it: tuples as lists, and whole numbers as floats."""
    if not isinstance(value, tuple):
        return value
    return [str(v) if isinstance(v, float) and v.is_integer() else v for v in value]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("size", value) for value in [(0, 1), (1, 9000), (1,), 5, (1.0, 2.0), (True, 1), "12"]],
        *[("channels", value) for value in [0, 1.5, 2000, None]],
        *[("mean", value) for value in [math.nan, math.inf, "a", (0.1, 0.2), None, True]],
        *[("std", value) for value in [0, -1, math.nan, (1.0, 1.0, 0.0)]],
        *[("crop", value) for value in [0, -1, "circle", (1, 2, 3), (3, 0, 2, 5), (0.0, 0.0, 1.0, 1.0), True]],
        *[("fill", value) for value in [-0.1, 1.1, math.nan, None]],
        ("mirror", 1),
        ("resize", "squash"),
        ("interpolation", "lanczos"),
    ],
)
@pytest.mark.untyped
def test_refuses(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        PicturePreprocessing(**{name: value})
    with pytest.raises(ValueError, match=f"{name} must be"):
        Preprocessing.from_dict({name: as_json(value)})


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (torch.zeros(3, 4), "a tensor must"),
        (torch.zeros(1, 2, 2, dtype=torch.int64), "a tensor must be uint8"),
        (torch.full((1, 2, 2), 255.0), "floating-point pixels must lie in 0 … 1, got 255"),
        (torch.full((1, 2, 2), math.nan), "floating-point pixels must lie in 0 … 1, got nan"),
        (np.zeros((2, 2), np.int64), "an array must hold pixels"),
        (np.zeros(4, np.uint8), "an array must hold pixels"),
        (torch.zeros(2, 4, 4, dtype=torch.uint8), "images must have 3 channels .* got 2"),
        (7, "an image must be a path, bytes, a PIL image, an array or a tensor, got int"),
    ],
)
def test_refuses_other_objects(image, message):
    with pytest.raises(ValueError, match=message):
        PicturePreprocessing()(image)


@pytest.mark.untyped
def test_unknown_names_are_refused():
    with pytest.raises(
        ValueError,
        match=r"there is no key preprocessing\.sizes: PicturePreprocessing has size, .*; did you mean size\?",
    ):
        Preprocessing.from_dict({"sizes": [1, 2]})
    with pytest.raises(ValueError, match=r"preprocessing must be a constructor call, got \[1\]"):
        Preprocessing.from_dict([1])


def test_other_statistics():
    assert PicturePreprocessing().with_statistics(0.5, (0.1, 0.2, 0.3)).std == (0.1, 0.2, 0.3)


@dataclass(frozen=True)
class Windows(Preprocessing):
    """Several tensors per sample, each with its position."""

    length: int = 2
    scale: float = 1.0

    @property
    def shape(self):
        return (self.length,)

    def load_all(self, sample, box=None):
        return [Prepared(part, {"start": i * self.length}) for i, part in enumerate(sample.split(self.length))]

    def load(self, sample, box=None):
        return self.load_all(sample)[0].tensor

    def normalize(self, stored):
        return stored / self.scale


def test_another_kind_of_sample_may_give_several_tensors():
    prepare = Windows(scale=2.0)
    found = prepare.load_all(torch.arange(4))
    assert [(one.tensor.tolist(), one.info["start"]) for one in found] == [([0, 1], 0), ([2, 3], 2)]
    assert prepare(torch.arange(4)).tolist() == [0.0, 0.5]
    kept = json.loads(json.dumps(prepare.to_dict()))
    assert Preprocessing.from_dict(kept, trust=True) == prepare
    with pytest.raises(ValueError, match="trust"):
        Preprocessing.from_dict(kept)
    with pytest.raises(ValueError, match=r"preprocessing must be one of .*PicturePreprocessing, got 'CropFlip'"):
        Preprocessing.from_dict({"call": "CropFlip"})


def test_pictures_have_one_tensor_and_may_be_bytes():
    prepare = PicturePreprocessing(size=(4, 4), channels=1)
    content = encoded(random(4, 4))
    (only,) = prepare.load_all(content)
    assert torch.equal(only.windows(prepare.shape)[0], prepare.load(content))
    assert only.windows(prepare.shape)[0, 0].tolist() == random(4, 4).tolist()
    assert prepare.shape == (1, 4, 4)
    assert not only.info


def test_a_class_must_return_its_arguments():
    class Plain(Windows):
        arguments = Preprocessing.arguments

    assert Plain().arguments() == {"length": 2, "scale": 1.0}

    class Bare(Preprocessing):
        shape = (1,)
        load = normalize = None

    with pytest.raises(NotImplementedError, match="Bare must be a dataclass or override arguments"):
        Bare().to_dict()
