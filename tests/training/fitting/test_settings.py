import functools

import pytest
import torch

from hypersphere.config import Call, call, encode
from hypersphere.data import Affine, Flip
from hypersphere.models import sphereface4
from hypersphere.objectives import ArcFace
from hypersphere.training import FitSettings
from hypersphere.training.fitting.settings import Overrides


def early(settings):
    return Overrides(settings).apply_to_defaults().build()


def test_augmentations_in_any_form():
    one, two = call(Affine), call(Flip)
    assert FitSettings().augmentations == ()
    assert FitSettings(augment=one).augmentations == (one,)
    assert FitSettings(augment=(one, two)).augmentations == (one, two)


def test_options_of_the_source():
    assert FitSettings(depth=2, labels="who").source_options == {"depth": 2, "labels": "who"}


def test_they_can_be_written_and_read():
    written = encode(FitSettings(size=(40, 80)), defaults=True)
    assert written["size"] == [40, 80]
    assert written["backbone"]["call"] == "sphereface10"
    assert Call(FitSettings, {"size": (40, 80)}).build() == FitSettings(size=(40, 80))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"validation": 1.0}, r"validation must lie in \[0, 1\)"),
        ({"least_images": 0}, "least_images must be an integer ≥ 1"),
        ({"batch_size": 1}, "batch_size must be an integer ≥ 2"),
        ({"head_first": -1}, "head_first must be an integer ≥ 0"),
        ({"workers": 999}, "workers must lie in 0 … 256"),
        ({"channels": 2}, "channels must be 1, 3 or none"),
        ({"size": (2,)}, "size must be one number or height and width, each ≥ 4"),
        ({"normalize": "pixel_mean"}, "normalize=pixel_mean cannot be stored"),
    ],
)
def test_refuses_values(wrong, message):
    with pytest.raises(ValueError, match=message):
        FitSettings(**wrong)


def test_texts_and_values_reach_every_setting():
    settings = early(["head=ArcFace", "head.m=0.4", "augment.0=Affine", "augment.0.shift=3", "steps=5"])
    assert (settings.head.name, settings.head.arguments) == ("ArcFace", {"m": 0.4})
    assert settings.steps == 5
    assert early({"augment": None, "size": 20}).input_size == (20, 20)
    assert early(["size=40,80"]).input_size == early(["size=40x80"]).input_size == (40, 80)
    augmented = Overrides(["augment.0=Affine", "augment.0.shift=3"]).apply(Call(FitSettings)).build()
    assert augmented.augmentations[0].arguments == {"shift": 3.0}


def test_the_same_keys_in_python():
    settings = early(
        {"head.m": 0.4, "head": "ArcFace", "optimizer": functools.partial(torch.optim.Adam, lr=0.1), "steps": 5}
    )
    assert settings.head == Call(ArcFace, {"m": 0.4})
    assert early({"head": ArcFace}).head == early({"head": functools.partial(ArcFace)}).head == Call(ArcFace)


@pytest.mark.untyped  # the annotation is Call; a partial is converted to one
def test_a_partial_becomes_a_call():
    assert FitSettings(head=functools.partial(ArcFace, m=0.3)).head == Call(ArcFace, {"m": 0.3})


def test_a_backbone_by_name_call_partial_or_function():
    assert early(["backbone=sphereface4", "backbone.width=0.5"]).backbone.arguments == {"width": 0.5}
    for given in (call(sphereface4, width=0.5), functools.partial(sphereface4, width=0.5)):
        assert early({"backbone": given}).backbone == Call(sphereface4, {"width": 0.5})
    assert early({"backbone": sphereface4}).backbone.target is sphereface4


def test_keys_set_as_a_whole_and_keys_inside():
    overrides = Overrides({"head.m": 0.3, "optimizer.lr": 0.1, "steps": 3})
    assert overrides.given == {"steps"}
    assert overrides.reaches_into("head")
    assert overrides.reaches_into("optimizer")
    assert not overrides.reaches_into("steps")
    assert overrides.apply(Call(FitSettings)).build().optimizer.arguments["lr"] == 0.1


def test_an_argument_inside_an_automatic_choice_waits_for_it():
    overrides = Overrides(["augment.0.rotation=0"])
    assert overrides.apply_to_defaults().build().augment is None
    chosen = Call(FitSettings, {"augment": (call(Affine, rotation=0.2, shift=1.0),)})
    assert overrides.apply(chosen).build().augmentations[0].arguments == {"rotation": 0.0, "shift": 1.0}


def test_settings_by_keyword_are_added(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    overrides = Overrides({"backbone": str(tmp_path), "steps": 3}, steps=5, seed=1)
    assert (overrides.changes["steps"], overrides.changes["seed"]) == (5, 1)
    assert overrides.model_folder == str(tmp_path)


@pytest.mark.parametrize("text", ["steps", "=3", "nothing=1"])
def test_refuses_keys(text):
    with pytest.raises(ValueError, match=r"KEY=VALUE|there is no key"):
        early([text])
