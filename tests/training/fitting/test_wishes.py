import pytest

from hypersphere.config import Call, call
from hypersphere.models import sphereface4
from hypersphere.training import FitSettings
from hypersphere.training.fitting.wishes import wanted, wishes


def test_texts_and_values_reach_every_knob():
    settings = wanted(wishes(["head=ArcFace", "head.m=0.4", "augment.0=Affine", "augment.0.shift=3"], {"steps": 5}))
    assert (settings.head.name, settings.head.arguments) == ("ArcFace", {"m": 0.4})
    assert settings.augmentations[0].arguments == {"shift": 3.0}
    assert settings.steps == 5
    assert wanted(wishes(["augment=none"], {"size": 20})).size == (20,)
    assert wanted(wishes(["size=40,80"], {})).size == (40, 80)


def test_a_backbone_by_name_call_or_function():
    assert wanted(wishes(["backbone=sphereface4", "backbone.width=0.5"], {})).backbone.arguments == {"width": 0.5}
    assert wanted(wishes([], {"backbone": call(sphereface4, width=0.5)})).backbone.arguments == {"width": 0.5}
    assert wanted(wishes([], {"backbone": sphereface4})).backbone.target is sphereface4


def test_what_is_set_as_a_whole_and_what_inside():
    asked = wishes(["head.m=0.3"], {"optimizer__lr": 0.1, "steps": 3})
    assert asked.keys == {"steps"}
    assert asked.touches("head")
    assert asked.touches("optimizer")
    assert not asked.touches("steps")
    assert asked.carried_out(Call(FitSettings)).build().optimizer.arguments["lr"] == 0.1


@pytest.mark.parametrize("text", ["steps", "=3", "nothing=1"])
def test_refuses(text):
    with pytest.raises(ValueError, match=r"KEY=VALUE|there is no key"):
        wanted(wishes([text], {}))
