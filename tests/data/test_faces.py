"""Faces are found at the right place, aligned by least squares, and never found in pictures without faces."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hypersphere.data import (
    Face,
    FaceError,
    FacePreprocessing,
    Preprocessing,
    UnusableSampleError,
    align_face,
    open_source,
)
from hypersphere.data import faces as module
from hypersphere.data.faces import TEMPLATE, _suppress, choose_face, detect_faces, fit_similarity, measure_quality
from hypersphere.models import fetch_model
from tests.data.photographs import extract_people, find_network


@given(st.floats(-3, 3), st.floats(0.2, 5), st.floats(-50, 50), st.floats(-50, 50), st.integers(0, 1000))
def test_a_similarity_is_recovered(angle, scale, x, y, seed):
    source = np.random.default_rng(seed).standard_normal((5, 2)) * 10
    rotation = scale * np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    target = source @ rotation.T + [x, y]
    matrix = fit_similarity(torch.tensor(source), torch.tensor(target)).numpy()
    np.testing.assert_allclose(matrix, np.c_[rotation, [x, y]], atol=1e-8)


def test_a_similarity_has_the_least_squared_error():
    """Compare with numpy's least squares over (a, b, t_x, t_y) on noisy points."""
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
    with pytest.raises(FaceError, match="2 faces were found"):
        FacePreprocessing(choose="all").load(path)  # one tensor cannot hold both
    assert [one.info["box"] for one in FacePreprocessing().load_all(path, None, "largest")] == [(20, 20, 40, 40)]
    with pytest.raises(ValueError, match="choose must be one of largest, central, all, refuse, got 'first'"):
        FacePreprocessing().load_all(path, None, "first")


def test_a_source_names_the_photograph_without_a_face(monkeypatch, tmp_path):
    for person in ("ann", "bob"):
        (tmp_path / person).mkdir()
        Image.new("RGB", (64, 64)).save(tmp_path / person / "wall.png")
    monkeypatch.setattr(module, "detect_faces", lambda picture, **options: [])
    source = open_source(tmp_path)
    for load in (source.load, source.load_all):
        with pytest.raises(UnusableSampleError, match=r"ann/wall\.png: no face was found$"):
            load(0, FacePreprocessing())


def test_it_survives_a_file_and_refuses_nonsense():
    prepare = FacePreprocessing(choose="central", min_score=0.7)
    assert Preprocessing.from_dict(prepare.to_dict()) == prepare
    for wrong in (
        {"template": ((1, 2),)},
        {"min_score": 2.0},
        {"size": (4, 4)},
        {"std": 0.0},
        {"max_side": 10**6},
        {"min_side": 4096},
    ):
        with pytest.raises(ValueError, match="must"):
            FacePreprocessing(**wrong)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """The first 24 photographs of LFW."""
    find_network("yunet")
    folders = extract_people(tmp_path_factory.mktemp("lfw"), pictures=24)
    return sorted(path for folder in folders for path in folder.iterdir())


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


@pytest.mark.parametrize("size", [(128, 128), (150, 201), (700, 520)])
def test_boxes_and_landmarks_are_those_of_opencv(photographs, size):
    """Boxes and landmarks agree within a pixel at every picture size."""
    cv2 = pytest.importorskip("cv2")
    theirs = cv2.FaceDetectorYN.create(str(fetch_model("yunet")), "", size[::-1], 0.6, 0.3)
    for path in photographs[:8]:
        picture = np.asarray(Image.open(path).resize(size[::-1]))
        _, found = theirs.detect(np.ascontiguousarray(picture[:, :, ::-1]))
        mine = detect_faces(torch.from_numpy(picture.copy()).permute(2, 0, 1), min_side=0)
        assert len(mine) == len(found)
        for face, row in zip(mine, sorted(found, key=lambda row: -row[-1]), strict=True):
            x, y, width, height = row[:4]
            np.testing.assert_allclose(face.box, [x, y, x + width, y + height], atol=1)
            np.testing.assert_allclose(np.ravel(face.landmarks), row[4:14], atol=1)
            assert face.score == pytest.approx(row[14], abs=1e-3)


def test_small_pictures_are_enlarged_for_detection(photographs):
    picture = torch.from_numpy(np.asarray(Image.open(photographs[0])).copy()).permute(2, 0, 1)
    large = torch.nn.functional.interpolate(picture[None].float(), scale_factor=2, mode="bilinear")[0].round().byte()
    (small,), (enlarged,) = detect_faces(picture), detect_faces(large, min_side=0)
    np.testing.assert_allclose(np.ravel(small.landmarks) * 2, np.ravel(enlarged.landmarks), atol=0.5)
    assert detect_faces(picture, min_side=0)[0].landmarks != small.landmarks


def test_aligned_faces_are_those_of_opencv(photographs):
    cv2 = pytest.importorskip("cv2")
    theirs = cv2.FaceRecognizerSF.create(str(find_network("sface")), "")
    for path in photographs[:4]:
        picture = np.asarray(Image.open(path))
        face = detect_faces(torch.from_numpy(picture.copy()).permute(2, 0, 1))[0]
        (x1, y1, x2, y2), marks = face.box, np.ravel(face.landmarks)
        row = np.array([[x1, y1, x2 - x1, y2 - y1, *marks, face.score]], dtype=np.float32)
        expected = theirs.alignCrop(np.ascontiguousarray(picture[:, :, ::-1]), row)[:, :, ::-1].astype(float)
        mine = align_face(torch.from_numpy(picture.copy()).permute(2, 0, 1), face).permute(1, 2, 0).numpy()
        assert np.abs(mine - expected)[2:-2, 2:-2].mean() < 0.1


def test_a_photograph_on_its_side_is_turned_upright(photographs, tmp_path):
    picture = Image.open(photographs[0])
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise to view
    picture.rotate(90, expand=True).save(tmp_path / "side.png", exif=exif)
    picture.save(tmp_path / "upright.png")
    (side,), (upright,) = (FacePreprocessing().load_all(tmp_path / f"{name}.png") for name in ("side", "upright"))
    np.testing.assert_allclose(side.info["box"], upright.info["box"], atol=1e-3)
    assert torch.equal(side.tensor, upright.tensor)
