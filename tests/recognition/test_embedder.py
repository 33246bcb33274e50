import pickle

import pytest
import safetensors.torch
import torch
from torch import nn

from hypersphere.recognition import EmbeddingModel, Preprocessing, fingerprint, load_model, save_model

OPTIONS = {
    "constructor": "tiny",
    "arguments": {"channels": 1, "dim": 5},
    "preprocessing": {"size": [12, 10], "channels": 1},
}


def test_a_model_comes_back(models, tmp_path):
    model = models.tiny(1, 5, seed=7)
    model(torch.rand(4, 1, 12, 10))  # moves the running statistics
    save_model(model, tmp_path / "model.safetensors", **OPTIONS)
    loaded = load_model(tmp_path / "model.safetensors")
    assert loaded.preprocessing == Preprocessing((12, 10), 1)
    assert loaded.fingerprint == fingerprint(model)
    images = torch.rand(3, 1, 12, 10)
    model.eval()
    torch.testing.assert_close(loaded(images), model((images * 255 - 127.5) / 128))


def test_mirror_images_are_appended(models, tmp_path):
    model = models.tiny(1, 5).eval()
    save_model(model, tmp_path / "m", **{**OPTIONS, "preprocessing": Preprocessing((12, 10), 1, 0.0, 1.0, mirror=True)})
    images = torch.rand(2, 1, 12, 10)
    torch.testing.assert_close(
        load_model(tmp_path / "m")(images), torch.cat([model(images), model(images.flip(-1))], 1)
    )


def test_a_fingerprint_is_of_names_dtypes_shapes_and_values():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    first = fingerprint(model)
    assert len(first) == 64
    assert fingerprint(model.eval()) == first
    assert fingerprint(nn.Sequential(*model.double().children())) != first
    model.float()
    assert fingerprint(model) == first
    assert fingerprint(nn.ModuleDict({"a": model[0], "b": model[1]})) != first
    model[1].running_mean[0] += 1e-7
    assert fingerprint(model) != first
    assert fingerprint(nn.Linear(1, 1).to(torch.bfloat16)) != fingerprint(nn.Linear(1, 1).to(torch.bfloat16))


def test_the_mode_is_left_and_no_graph_is_kept(models):
    model = EmbeddingModel(models.tiny().train(), Preprocessing((12, 10), 1))
    features = model(torch.rand(2, 1, 12, 10))
    assert all(m.training for m in model.network.modules())
    assert not features.requires_grad


def test_a_classifier_gives_its_features_not_its_logits():
    class Classifier(nn.Module):
        def features(self, x):
            return x.flatten(1)

        def forward(self, x):
            return self.features(x)[:, :2]

    assert EmbeddingModel(Classifier(), Preprocessing((2, 2), 1))(torch.rand(3, 1, 2, 2)).shape == (3, 4)


def test_a_model_must_give_features():
    with pytest.raises(ValueError, match=r"features of shape \(n, d\), got torch.float32 \(2, 1, 4, 4\)"):
        EmbeddingModel(nn.Identity(), Preprocessing((4, 4), 1))(torch.rand(2, 1, 4, 4))


@pytest.mark.parametrize("name", ["hidden", "missing", "__class__", "os.system", "plain_function.__globals__", "torch"])
def test_only_the_exported_constructors_can_be_named(models, tmp_path, name):
    with pytest.raises(ValueError, match=r"constructor must be one of hypersphere.models \(plain_function, tiny\)"):
        save_model(models.tiny(), tmp_path / "m", constructor=name)
    metadata = {"format": "hypersphere-model/1", "constructor": name, "arguments": "{}", "preprocessing": "{}"}
    safetensors.torch.save_file({"x": torch.ones(1)}, tmp_path / "m", metadata)
    with pytest.raises(ValueError, match="constructor must be one of"):
        load_model(tmp_path / "m")


def test_a_pickle_is_refused_and_never_run(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "exploded"), "w"))

    (tmp_path / "model.pt").write_bytes(pickle.dumps(Bomb()))
    torch.save({"a": torch.ones(2)}, tmp_path / "other.pt")
    for name in ("model.pt", "other.pt"):
        with pytest.raises(ValueError, match="is not a safetensors file"):
            load_model(tmp_path / name)
    assert not (tmp_path / "exploded").exists()


METADATA = {"format": "hypersphere-model/1", "constructor": "tiny", "arguments": "{}", "preprocessing": "{}"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "is not a model file of format hypersphere-model/1, got 'other'"),
        ({"arguments": "{"}, "does not say how its model is built"),
        ({"arguments": '{"wrong": 1}'}, "does not say how its model is built"),
        ({"constructor": None}, "does not say how its model is built"),
        ({"constructor": "plain_function"}, "plain_function must build a module, got int"),
        ({}, "the tensors of .* do not fit its model"),
    ],
)
def test_refuses_files(models, tmp_path, change, message):
    metadata = {k: v for k, v in {**METADATA, **change}.items() if v is not None}
    safetensors.torch.save_file({"x": torch.ones(1)}, tmp_path / "m", metadata)
    with pytest.raises(ValueError, match=message):
        load_model(tmp_path / "m")


def test_refuses_to_save(models, tmp_path):
    with pytest.raises(ValueError, match="arguments must be what JSON can hold"):
        save_model(models.tiny(), tmp_path / "m", constructor="tiny", arguments={"x": torch.ones(1)})
    with pytest.raises(ValueError, match="preprocessing knows size, channels, mean, std, mirror, got colour"):
        save_model(models.tiny(), tmp_path / "m", constructor="tiny", preprocessing={"colour": 1})
    with pytest.raises(ValueError, match="there is no file"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": (0, 4)}, "size must be"),
        ({"channels": 2}, "channels must be 1 or 3"),
        ({"std": 0.0}, "std must be a number > 0"),
    ],
)
def test_refuses_preprocessing(options, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing(**options)
