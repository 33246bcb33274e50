import dataclasses

import pytest
import torch

from hypersphere.config import Call, call
from hypersphere.data import Affine, AudioPreprocessing, FacePreprocessing
from hypersphere.models import GE2E
from hypersphere.objectives import ArcFace, CosFace, Softmax
from hypersphere.training import FitSettings
from hypersphere.training.fitting.choices import (
    Chooser,
    Facts,
    MirrorEvidence,
    choose_for_pretrained,
    choose_for_recordings,
    choose_input,
    choose_memory,
    choose_network,
    choose_training,
    format_value,
    measure_border,
    measure_symmetry,
)

FACES = Facts(6000, 1300, 3.0, 9000, (128, 128), 3, False)
DRAWN = Facts(240, 24, 10.0, 300, (105, 105), 1, False)


def chosen(facts, given=(), evidence=None, **arguments):
    result = Chooser(given, Call(FitSettings, arguments))
    choose_input(result, facts)
    choose_network(result, facts, None)
    choose_memory(result, facts)
    settings = result.tree.build()
    size = (settings.size[0], settings.size[-1])
    choose_training(result, facts, torch.full((4, facts.channels, *size), 200, dtype=torch.uint8), evidence)
    return result.tree.build(), {choice.key: choice for choice in result.choices}


def test_size_from_the_data():
    assert chosen(DRAWN)[0].size == (48, 48)
    assert chosen(dataclasses.replace(DRAWN, images=5000))[0].size == (32, 32)
    assert chosen(FACES)[0].size == (48, 48)
    small = dataclasses.replace(DRAWN, size=(40, 80))
    assert chosen(small)[0].size == (40, 80)
    assert chosen(dataclasses.replace(FACES, size=(200, 100)))[0].size == (68, 32)
    assert chosen(dataclasses.replace(FACES, accelerated=True))[0].size == (112, 112)


def test_head_by_classes_and_images():
    assert chosen(DRAWN)[0].head.target is CosFace
    many = dataclasses.replace(FACES, identities=5000, per_identity=60.0)
    head = chosen(many)[0].head
    assert (head.name, head.arguments["sub_centers"], head.arguments["scale"]) == ("ArcFace", 3, 24.0)


def test_steps_and_batches():
    few, many = chosen(DRAWN)[0], chosen(dataclasses.replace(FACES, images=10**6))[0]
    assert (few.batch_size, few.steps) == (60, 200)
    assert (many.batch_size, many.steps) == (128, 3906)


def test_few_pictures_per_identity_get_a_shallow_network_and_more_weight_decay():
    (faces, choices), (drawn, plain) = chosen(FACES), chosen(DRAWN)
    assert (faces.backbone.name, drawn.backbone.name) == ("sphereface4", "sphereface10")
    assert faces.optimizer.get("weight_decay") > drawn.optimizer.get("weight_decay")
    assert faces.steps == 20 * 6000 // 128
    assert all("a median of 3 pictures per identity" in choices[key].reason for key in ("backbone", "optimizer"))
    assert chosen(dataclasses.replace(FACES, accelerated=True))[0].backbone.name == "sphereface10"
    assert plain["optimizer"].reason == ""
    assert plain["backbone"].reason


def test_pictures_that_lie_alike_are_mirrored_and_not_moved():
    settings, choices = chosen(FACES)
    assert settings.sampler is None
    assert [step.name for step in settings.augmentations] == ["Flip"]
    assert choices["augment"].reason.startswith("mirror images and no shifts")
    assert "random order" in choices["sampler"].reason


def test_cross_validation_decides_on_mirror_images():
    settings, choices = chosen(DRAWN, evidence=MirrorEvidence(0.2, 0.15, True))
    assert [step.name for step in settings.augmentations] == ["Flip"]
    assert "15 % with mirror images and 20 % without" in choices["augment"].reason
    assert settings.mirror
    settings, _ = chosen(FACES, evidence=MirrorEvidence(0.2, 0.25, False))
    assert [step.name for step in settings.augmentations] == ["Affine"]
    assert not settings.mirror


def test_memory_and_workers():
    assert chosen(DRAWN)[0].memory
    large, choices = chosen(dataclasses.replace(FACES, all_images=10**6))
    assert not large.memory
    assert large.workers > 0
    assert (
        choices["memory"].reason
        == "the decoded pictures would need 6912 MB, so pictures are decoded when they are needed"
    )


def test_what_was_asked_for_stays():
    settings, choices = chosen(DRAWN, {"size", "steps"}, size=(20,), steps=7)
    assert (settings.size, settings.steps) == ((20,), 7)
    assert choices["steps"].reason == choices["size"].reason == "you asked for it"


def test_symmetry():
    draw = torch.randint(0, 256, (1, 1, 6, 8), dtype=torch.uint8)
    assert measure_symmetry(torch.cat([draw, draw.flip(3)])) == pytest.approx(1)
    ramp = torch.arange(8, dtype=torch.uint8).expand(1, 1, 6, 8)
    assert measure_symmetry(ramp) == pytest.approx(-1)
    assert measure_symmetry(torch.zeros(1, 1, 2, 2, dtype=torch.uint8)) == 1


def test_border():
    picture = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    picture[..., 0, :] = picture[..., -1, :] = picture[..., 0] = 255
    assert measure_border(picture) == 255


def test_values_as_text():
    assert format_value(call(Affine, rotation=0.5)) == "Affine(rotation=0.5)"
    assert [format_value(value) for value in (None, True, (3, 4), (), 0.25, "x")] == [
        "none",
        "true",
        "3,4",
        "none",
        "0.25",
        "x",
    ]


def test_long_pictures_are_not_moved():
    settings, choices = chosen(dataclasses.replace(DRAWN, size=(40, 80)))
    assert settings.augmentations == ()
    assert "long pictures" in choices["augment"].reason
    assert chosen(DRAWN)[0].augmentations[0].name == "Affine"


def test_another_head_keeps_the_automatic_scale():
    automatic = chosen(DRAWN)[0].head.arguments["scale"]
    assert chosen(DRAWN, {"head"}, head=call(ArcFace, m=0.3))[0].head.arguments == {"m": 0.3, "scale": automatic}
    assert chosen(DRAWN, {"head"}, head=call(ArcFace, scale=50.0))[0].head.arguments["scale"] == 50.0
    assert "scale" not in chosen(DRAWN, {"head"}, head=call(Softmax))[0].head.arguments


def test_recordings_are_cropped_and_noisy_and_never_mirrored():
    prepare = AudioPreprocessing(frames=100, step=50, bands=40, center=False)
    chooser = Chooser((), Call(FitSettings))
    choose_for_recordings(chooser, dataclasses.replace(DRAWN, images=300, identities=20), prepare)
    settings = chooser.tree.build()
    assert [step.name for step in settings.augmentations] == ["RandomCrop", "Gain", "AddNoise"]
    assert settings.augmentations[0].get("samples") == prepare.shape[0]
    assert settings.backbone.arguments == {"bands": 40, "stride": 2, "center": True}
    assert settings.mirror is False
    assert settings.steps == max(200, 30 * 300 // settings.batch_size)


@pytest.mark.parametrize(("images", "how"), [(100, "frozen"), (5000, "last"), (20_000, "oft"), (200_000, "full")])
def test_how_much_of_a_pretrained_network_learns_depends_on_the_samples(images, how):
    chooser = Chooser((), Call(FitSettings, {"start": "ge2e"}))
    facts = dataclasses.replace(DRAWN, images=images)
    choose_for_pretrained(chooser, facts, call(GE2E), AudioPreprocessing(), "ge2e")
    settings = chooser.tree.build()
    assert settings.tune == how
    assert (settings.steps == 0) == (how == "frozen")
    reasons = {choice.key: choice.reason for choice in chooser.choices}
    assert reasons["tune"].startswith(f"{images} training samples of ")
    assert reasons["backbone"] == "the network of ge2e"
    if how != "frozen":
        assert settings.optimizer.get("lr") == (1e-4 if how == "full" else 1e-3)


def test_faces_are_mirrored_when_a_pretrained_network_learns():
    for how, names in (("frozen", []), ("last", ["Flip"])):
        chooser = Chooser(("tune",), Call(FitSettings, {"start": "sface", "tune": how}))
        choose_for_pretrained(chooser, FACES, call(GE2E), FacePreprocessing(), "sface")
        assert [step.name for step in chooser.tree.build().augmentations] == names
