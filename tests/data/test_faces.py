"""Faces are found where they are, aligned by least squares, and never invented."""

import math
import os
import pathlib
import tarfile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hypersphere.data import Face, FaceError, FacePreprocessing, Preprocessing, align_face
from hypersphere.data import faces as module
from hypersphere.data.faces import TEMPLATE, _suppress, choose_face, fit_similarity, measure_quality
from hypersphere.models import FetchError, load_network


@given(st.floats(-3, 3), st.floats(0.2, 5), st.floats(-50, 50), st.floats(-50, 50), st.integers(0, 1000))
def test_a_similarity_is_recovered(angle, scale, x, y, seed):
    source = np.random.default_rng(seed).standard_normal((5, 2)) * 10
    rotation = scale * np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    target = source @ rotation.T + [x, y]
    matrix = fit_similarity(torch.tensor(source), torch.tensor(target)).numpy()
    np.testing.assert_allclose(matrix, np.c_[rotation, [x, y]], atol=1e-8)


def test_a_similarity_has_the_least_squared_error():
    """Against numpy's least squares over (a, b, t_x, t_y) of noisy points."""
    rng = np.random.default_rng(0)
    source, target = rng.standard_normal((5, 2)), rng.standard_normal((5, 2))
    rows = [[sx, -sy, 1, 0] for sx, sy in source] + [[sy, sx, 0, 1] for sx, sy in source]
    (a, b, x, y), *_ = np.linalg.lstsq(np.array(rows), np.r_[target[:, 0], target[:, 1]], rcond=None)
    found = fit_similarity(torch.tensor(source), torch.tensor(target)).numpy()
    np.testing.assert_allclose(found, [[a, -b, x], [b, a, y]], atol=1e-10)


def test_aligning_a_face_that_lies_on_the_template_changes_nothing():
    picture = torch.randint(0, 256, (3, 112, 112), generator=torch.Generator().manual_seed(0)).byte()
    face = Face((0.0, 0.0, 112.0, 112.0), TEMPLATE, 1.0)
    assert torch.equal(align_face(picture, face), picture)


def test_a_moved_face_is_moved_back_and_the_outside_is_black():
    picture = torch.full((3, 300, 400), 200, dtype=torch.uint8)
    picture[:, 150:160, 250:260] = 50
    marks = tuple((x + 200, y + 100) for x, y in TEMPLATE)
    cut = align_face(picture, Face((200.0, 100.0, 312.0, 212.0), marks, 1.0))
    assert torch.equal(cut, picture[:, 100:212, 200:312])
    marks = tuple((x - 56, y) for x, y in TEMPLATE)
    cut = align_face(picture, Face((0.0, 0.0, 56.0, 112.0), marks, 1.0))
    assert (cut[:, :, :54] == 0).all()
    assert (cut[:, :, 57:] == 200).all()


@given(st.integers(0, 10_000), st.integers(1, 30))
def test_suppression_agrees_with_brute_force(seed, count):
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 20, (count, 2))
    boxes = np.c_[low, low + rng.uniform(1, 15, (count, 2))]
    scores = rng.permutation(count) / count
    kept = []
    for i in np.argsort(-scores):

        def overlap(j, i=i):
            w = min(boxes[i, 2], boxes[j, 2]) - max(boxes[i, 0], boxes[j, 0])
            h = min(boxes[i, 3], boxes[j, 3]) - max(boxes[i, 1], boxes[j, 1])
            area = [(b[2] - b[0]) * (b[3] - b[1]) for b in (boxes[i], boxes[j])]
            shared = max(w, 0) * max(h, 0)
            return shared / (sum(area) - shared)

        if all(overlap(j) <= 0.3 for j in kept):
            kept.append(int(i))
    assert _suppress(torch.tensor(boxes).float(), torch.tensor(scores).float()) == kept


def test_the_largest_and_the_most_central_face():
    big, middle = Face((0, 0, 50, 50), TEMPLATE, 0.9), Face((90, 90, 110, 110), TEMPLATE, 0.8)
    assert choose_face([middle, big], "largest", (200, 200)) == big
    assert choose_face([big, middle], "central", (200, 200)) == middle


def test_quality_sees_blur_tilt_and_light():
    rng = torch.Generator().manual_seed(0)
    sharp = torch.randint(0, 256, (3, 112, 112), generator=rng).byte()
    dull = torch.full((3, 112, 112), 30, dtype=torch.uint8)
    tilted = tuple((x, y + 0.5 * x) for x, y in TEMPLATE)
    a, b = (
        measure_quality(sharp, Face((0, 0, 1, 1), TEMPLATE, 1.0)),
        measure_quality(dull, Face((0, 0, 1, 1), tilted, 1.0)),
    )
    assert a["sharpness"] > b["sharpness"] == 0
    assert abs(a["roll"]) < 1 < b["roll"]
    assert a["brightness"] > b["brightness"] == pytest.approx(30 / 255, abs=1e-4)


def test_no_face_and_several_faces_are_reported_by_name(monkeypatch, tmp_path):
    path = tmp_path / "wall.png"
    Image.new("RGB", (64, 64)).save(path)
    monkeypatch.setattr(module, "detect_faces", lambda picture, **options: [])
    with pytest.raises(FaceError, match=r"no face was found in .*wall\.png"):
        FacePreprocessing().load(path)
    assert FacePreprocessing().load_all(path) == []
    two = [Face((0, 0, 9, 9), TEMPLATE, 0.9), Face((20, 20, 40, 40), TEMPLATE, 0.9)]
    monkeypatch.setattr(module, "detect_faces", lambda picture, **options: two)
    with pytest.raises(FaceError, match=r"2 faces were found in .*refuse"):
        FacePreprocessing(choose="refuse").load(path)
    found = FacePreprocessing().load_all(path, (10, 20, 60, 60))
    assert [one.info["box"] for one in found] == [(30, 40, 50, 60), (10, 20, 19, 29)]


def test_it_survives_a_file_and_refuses_nonsense():
    prepare = FacePreprocessing(choose="central", min_score=0.7)
    assert Preprocessing.from_dict(prepare.to_dict()) == prepare
    for wrong in ({"template": ((1, 2),)}, {"min_score": 2.0}, {"size": (4, 4)}, {"std": 0.0}, {"max_side": 10**6}):
        with pytest.raises(ValueError, match="must"):
            FacePreprocessing(**wrong)


def find_lfw():
    root = pathlib.Path(os.environ.get("HYPERSPHERE_DATA", pathlib.Path(__file__).parents[3] / "shared" / "data"))
    archive = root / "lfw" / "lfw_deepfunneled_crop128.tar.xz"
    if not archive.is_file():
        pytest.skip("LFW is not here; set HYPERSPHERE_DATA")
    try:
        load_network("yunet")
    except FetchError as error:
        pytest.skip(f"the detector cannot be fetched: {error}")
    return archive


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """The first 24 photographs of LFW."""
    folder, found = tmp_path_factory.mktemp("lfw"), []
    with tarfile.open(find_lfw()) as archive:
        for member in archive:
            if member.name.endswith(".jpg"):
                path = folder / pathlib.Path(member.name).name
                path.write_bytes(archive.extractfile(member).read())
                found.append(path)
            if len(found) == 24:
                return found
    raise AssertionError("LFW is smaller than it should be")


def test_every_photograph_of_lfw_has_a_face_in_its_middle(photographs):
    for path in photographs:
        face = max(FacePreprocessing().load_all(path), key=lambda one: one.info["score"])
        left, top, right, bottom = face.info["box"]
        assert left < 64 < right
        assert top < 64 < bottom
        marks = face.info["landmarks"]
        assert marks[0][0] < marks[1][0]  # eyes from left to right
        assert max(marks[0][1], marks[1][1]) < min(marks[3][1], marks[4][1])  # eyes above the mouth


def test_two_people_on_one_photograph_are_two_faces(photographs):
    a, b = (np.asarray(Image.open(path)) for path in photographs[:2])
    both = Image.fromarray(np.concatenate([a, b], 1))
    boxes = sorted(one.info["box"] for one in FacePreprocessing().load_all(both))
    assert len(boxes) == 2
    assert boxes[0][2] < 128 + 20
    assert boxes[1][0] > 128 - 20
