import pytest
import torch

from hypersphere import load
from hypersphere.config import as_call, assign
from hypersphere.training import Config, PretrainSettings, build_task, fit, pretrain
from tests.training.fitting.drawn import folder

QUICK = {"backbone.width": 0.1, "pictures": False, "threads": 1, "steps": 6, "batch_size": 16}


def test_needs_no_labels_and_a_fit_starts_from_the_file(tmp_path):
    people = folder(tmp_path / "people", identities=6)
    flat = tmp_path / "flat"
    flat.mkdir()
    for i, picture in enumerate(sorted(people.rglob("*.png"))):
        (flat / f"{i}.png").write_bytes(picture.read_bytes())
    lines = []
    file = pretrain(flat, tmp_path / "run" / "start.safetensors", settings=QUICK, say=lines.append)
    assert file == tmp_path / "run" / "start.safetensors"
    assert file.read_bytes() == (tmp_path / "run" / "start" / "embedder.safetensors").read_bytes()
    assert any(line.startswith("augment=ResizedCrop") for line in lines)
    embedder = load(file)
    run = fit(
        people, tmp_path / "fit", settings={"pictures": False, "threads": 1}, weights=str(file), steps=1, quiet=True
    )
    assert run.embedder.call is not None
    chosen = {choice.key: choice.reason for choice in run.choices}
    assert chosen["backbone"] == "the network of the given weights"
    assert embedder(list(torch.zeros(1, 1, 16, 16, dtype=torch.uint8).numpy()[:, 0])).shape[1] == 128


def test_continues_with_the_same_result(tmp_path):
    pictures = folder(tmp_path / "people", identities=4)
    whole = pretrain(pictures, tmp_path / "whole", settings={**QUICK, "teacher": 0.9})
    with pytest.raises(KeyboardInterrupt):
        pretrain(pictures, tmp_path / "parts", settings={**QUICK, "teacher": 0.9}, progress=stop_at(3))
    parts = pretrain(pictures, tmp_path / "parts", settings={**QUICK, "teacher": 0.9})
    assert whole.read_bytes() == parts.read_bytes()


def stop_at(last):
    def listen(trainer):
        def progress(step, row):
            if step == last:
                raise KeyboardInterrupt

        return progress

    return listen


@pytest.mark.parametrize("key", ["head", "losses", "sampler", "orthogonal"])
def test_settings_of_labels_are_refused(key, tmp_path):
    with pytest.raises(ValueError, match=f"{key} has no meaning in pretrain"):
        pretrain(tmp_path, tmp_path / "run", settings=[f"{key}=CosFace"])


def test_any_kernel_is_a_setting(tmp_path):
    settings = PretrainSettings().replace({"uniformity": "FeatureEnergy", "uniformity.kernel": "Heat"})
    assert settings.uniformity.build().kernel is not None


def test_refuses():
    with pytest.raises(ValueError, match="batch_size must be an integer ≥ 2"):
        PretrainSettings(batch_size=1)
    with pytest.raises(ValueError, match="normalize=pixel_mean"):
        PretrainSettings(normalize="pixel_mean")


@pytest.mark.parametrize(
    "changes",
    [
        ["losses.0.objective=FeatureEnergy", "losses.0.objective.kernel=MMD"],
        ["losses.0.objective=GlobalOrthogonalRegularization", "losses.0.weight=0.1"],
        ["losses.0.objective=CrossBatchMemory", "losses.0.objective.loss=SupCon"],
        ["energy=CoMHE", "energy.projection=NonlinearProjection", "energy.kernel=Heat"],
        ["head=PrototypeSoftmax", "head.groups=0,0,1,1,2,2,2,3,3,3"],
    ],
    ids=lambda changes: changes[0],
)
def test_the_command_line_reaches_losses_kernels_and_projections(changes):
    config = assign(as_call(Config()), ["backbone=mlp", "backbone.width=0.05", *changes]).build()
    task = build_task(config).train()
    loss, parts = task(0, *next(iter(task.loader)))
    loss.backward()
    assert all(part.isfinite() for part in parts.values())
