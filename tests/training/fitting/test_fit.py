import importlib
import json
import os
import pathlib

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import hypersphere as hs
from hypersphere.data import DataError
from hypersphere.evaluation.evidence import FILE as EVIDENCE
from hypersphere.evaluation.evidence import Evidence, choose_samples
from hypersphere.models import Joined
from hypersphere.training import Recognition, Run, Trainer, fit
from hypersphere.training.fitting import budget as budgeting

from .drawn import QUICK, SOURCES, folder

fit_module = importlib.import_module("hypersphere.training.fitting._fit")


def stop_at(step):
    """Interrupt at a step, as Ctrl-C does."""

    def progress(trainer):
        def update(now, row):
            if now >= step:
                raise KeyboardInterrupt

        return update

    return progress


def weights(run):
    return load_file(run.folder / "model.safetensors")


def test_it_recognises_identities_it_never_saw(fitted):
    run, _ = fitted
    assert run.report.rank(1) > 0.9
    assert run.metrics["rank-1"] == float(run.report.rank(1))
    assert run.metrics["identities"] == 3
    names = {path.name for path in run.folder.iterdir()}
    assert {"embedder.safetensors", "report.json", "choices.json", "check.json", "held_out.safetensors"} <= names
    modes = {
        name: (run.folder / name).stat().st_mode & 0o777
        for name in ("held_out.safetensors", "report.html")
        if name in names
    }
    assert set(modes.values()) == {0o600}, "features and thumbnails of people"
    assert {"roc.png", "worst_different.png", "worst_same.png"} <= {p.name for p in (run.folder / "pictures").iterdir()}


def test_the_report_has_baselines(fitted):
    run, _ = fitted
    names = {baseline.name for baseline in run.baselines}
    assert {"raw pixels", "PCA", "PCA + LDA", "LBP", "HOG", "the network before training"} <= names
    stored = json.loads((run.folder / "report.json").read_text())["baselines"]
    assert [set(entry) for entry in stored] == [
        {"name", "eer", "interval", "difference", "difference_interval"} for _ in stored
    ]
    assert [entry["eer"] for entry in stored] == sorted(entry["eer"] for entry in stored)
    for entry in stored:
        assert entry["difference"] == pytest.approx(run.metrics["EER"] - entry["eer"], abs=1e-6)


def test_selection_never_ends_worse_than_it_started(tmp_path):
    people = folder(tmp_path / "people", identities=25)
    run = fit(people, tmp_path / "run", settings=[*QUICK, "optimizer.lr=1e-9", "evaluate_every=6", "pictures=false"])
    rows = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
    eers = [row["eer"] for row in rows if "eer" in row]
    assert json.loads((run.folder / "metrics.json").read_text())["eer"] == min(eers)
    said = {choice.key: choice for choice in run.choices}
    assert said["keep_best"].value == "true"
    assert "neither trained on nor among the 5 identities of the report" in said["selection"].reason
    assert "4 selection identities" in said["last_layer"].reason
    assert len(load_file(run.folder / "model.safetensors")["classifier.weight"]) == 16


SEVERAL = [*(text for text in QUICK if "networks" not in text), "networks=3", "pictures=false", "baselines=false"]


def measure_as(monkeypatch, eers):
    """Make successive evaluations during training return these EERs."""
    found = iter(eers)
    monkeypatch.setattr(Recognition, "evaluate", lambda self: {"eer": next(found), "rank1": 50.0})


def test_other_networks_are_trained_on_the_selection_identities_too(tmp_path, monkeypatch):
    measure_as(monkeypatch, range(100, 0, -1))
    lines = []
    run = fit(folder(tmp_path / "people", identities=25), tmp_path / "run", settings=SEVERAL, say=lines.append)
    assert "network 3 of 3 is trained on 20 identities" in lines
    joined = run.embedder.network
    assert isinstance(joined, Joined)
    assert len(joined.networks) == 4
    share = joined.weights[0]
    assert joined.weights == pytest.approx([share, share, share, 1 - 3 * share])
    assert len(weights(run)["classifier.weight"]) == 16
    for i in (2, 3):
        own = run.folder / "networks" / str(i)
        assert len(load_file(own / "model.safetensors")["classifier.weight"]) == 20
        config = json.loads((own / "config.json").read_text())
        assert (config["fit"]["seed"], config["fit"]["keep_best"]) == (i - 1, False)
    states = [network.state_dict() for network in joined.networks[:3]]
    assert not any(torch.equal(states[0][name], states[1][name]) for name in states[0] if name.endswith("conv.weight"))


def test_few_identities_have_several_networks_without_descriptors_too(tmp_path):
    settings = [*SEVERAL, "last_layer=none", "steps=4"]
    run = fit(folder(tmp_path / "people", identities=9), tmp_path / "run", settings=settings, quiet=True)
    assert run.embedder.network.weights == pytest.approx([1 / 3] * 3)
    assert "descriptors" not in {choice.key for choice in run.choices}


def test_other_networks_are_continued_exactly(tmp_path, monkeypatch):
    people, settings = folder(tmp_path / "people", identities=9), [*SEVERAL, "steps=8", "checkpoint_every=2"]
    whole = fit(people, tmp_path / "whole", settings=settings, quiet=True)
    train = Trainer._train

    def stop_second(self, batches):
        if self.folder.path.parent.name == "networks" and self.step == 5:
            raise KeyboardInterrupt
        train(self, batches)

    monkeypatch.setattr(Trainer, "_train", stop_second)
    with pytest.raises(KeyboardInterrupt):
        fit(people, tmp_path / "run", settings=settings, quiet=True)
    monkeypatch.setattr(Trainer, "_train", train)
    run = fit(people, tmp_path / "run", settings=settings, quiet=True)
    assert "resume" in (run.folder / "networks" / "2" / "events.jsonl").read_text()
    files = [load_file(one.folder / "held_out.safetensors")["features"] for one in (whole, run)]
    assert torch.equal(*files)


def test_other_networks_are_left_out_if_training_does_not_help(tmp_path, monkeypatch):
    measure_as(monkeypatch, [10.0, *[20.0] * 50])
    lines = []
    run = fit(folder(tmp_path / "people", identities=25), tmp_path / "run", settings=SEVERAL, say=lines.append)
    assert any("no other networks are trained" in line for line in lines)
    networks = next(choice for choice in run.choices if choice.key == "networks")
    assert networks.value == "1"
    assert "lowest before training" in networks.reason
    assert not (run.folder / "networks").exists()


def test_no_held_out_identity_was_trained_on(fitted):
    run, _ = fitted
    held = set(json.loads((run.folder / "report.json").read_text())["held_out"])
    assert len(held) == 3
    assert weights(run)["classifier.weight"].shape == (9, 16)


def test_the_embedder_gives_the_features_of_the_report(fitted, pictures):
    run, _ = fitted
    kept = load_file(run.folder / "held_out.safetensors")
    held = json.loads((run.folder / "report.json").read_text())["held_out"]
    files = [str(path) for who in held for path in sorted((pictures / who).iterdir())]
    torch.testing.assert_close(run.embedder(files), kept["features"])


def test_every_choice_is_said_with_its_reason_and_kept(fitted):
    run, lines = fitted
    assert lines[0].startswith(str(run.check["source"]))
    for choice in run.choices:
        assert choice.reason
        assert str(choice) in lines
    assert {"size", "channels", "augment", "head", "steps", "validation"} <= {choice.key for choice in run.choices}
    steps = next(choice for choice in run.choices if choice.key == "steps")
    assert (steps.value, steps.reason) == ("60", "you asked for it")


def test_typed_again_it_is_the_same_run(fitted, pictures):
    run, _ = fitted
    before = (run.folder / "report.json").read_bytes()
    again = hs.fit(pictures, run.folder, settings=[*QUICK, "steps=60"])
    assert (again.folder / "report.json").read_bytes() == before
    with pytest.raises(ValueError, match=r"holds a run with other settings \(.*head.m is 0.2 there, 0.3 here"):
        fit(pictures, run.folder, settings=[*QUICK, "steps=60", "head.m=0.3"])


@pytest.mark.parametrize("kind", SOURCES)
def test_a_stopped_run_of_any_source_goes_on_exactly(kind, tmp_path):
    source = SOURCES[kind](tmp_path / "source")
    blocks = ["sampler=ClassBalancedSampler", "sampler.classes=4", "sampler.each=3", "memory=false", "workers=2"]
    overrides = [
        *(text for text in QUICK if "batch" not in text),
        "pictures=false",
        "baselines=false",
        *blocks,
        "steps=12",
    ]
    whole = fit(source, tmp_path / "whole", settings=overrides)
    with pytest.raises(KeyboardInterrupt):
        fit(source, tmp_path / "run", settings=overrides, progress=stop_at(8))
    run = fit(source, tmp_path / "run", settings=overrides)
    events = [json.loads(line)["event"] for line in (run.folder / "events.jsonl").read_text().splitlines()]
    assert "resume" in events
    for name, tensor in weights(whole).items():
        assert torch.equal(tensor, weights(run)[name]), name
    assert json.loads((run.folder / "config.json").read_text())["fit"]["batch_size"] == 12


def test_a_cache_gives_the_same_pictures(pictures, tmp_path):
    few = [*QUICK, "steps=4", "pictures=false", "baselines=false"]
    plain = fit(pictures, tmp_path / "plain", settings=few)
    stored = fit(pictures, tmp_path / "stored", settings=[*few, f"cache={tmp_path / 'cache'}"])
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 2
    for name, tensor in weights(plain).items():
        assert torch.equal(tensor, weights(stored)[name]), name


def test_a_budget_is_planned_once(pictures, tmp_path, monkeypatch):
    planned, count = iter([14, 99]), budgeting.count_steps_within

    def count_few(task, seconds, measured):
        steps, speed = count(task, seconds, measured)
        assert steps >= 1
        return next(planned), speed

    monkeypatch.setattr(budgeting, "count_steps_within", count_few)
    few = [*(text for text in QUICK if "steps=24" not in text), "pictures=false", "baselines=false"]
    with pytest.raises(KeyboardInterrupt):
        fit(pictures, tmp_path / "run", settings=few, budget="8s", progress=stop_at(10))
    first = json.loads((tmp_path / "run" / "choices.json").read_text())
    run = fit(pictures, tmp_path / "run", settings=few, budget="8s")
    assert json.loads((run.folder / "choices.json").read_text())["steps"] == first["steps"]
    assert "planned for 8s" in next(c.reason for c in run.choices if c.key == "steps")


def test_a_damaged_check_is_reported_and_repeated(tmp_path):
    source, lines = folder(tmp_path / "people", identities=6), []
    few = [*QUICK, "steps=1", "pictures=false", "baselines=false", "last_layer=none"]
    run = fit(source, tmp_path / "run", settings=few, quiet=True)
    whole = run.check
    (run.folder / "check.json").write_text("{")
    again = fit(source, tmp_path / "run", settings=few, say=lines.append)
    assert lines[0].startswith(f"the samples are checked again: {run.folder / 'check.json'} is not readable as JSON")
    assert again.check == whole


def test_a_fresh_run_plans_its_steps_anew(tmp_path, monkeypatch):
    source, planned = folder(tmp_path / "people", identities=6), iter([2, 3])
    few = [*(text for text in QUICK if "steps=24" not in text), "pictures=false", "baselines=false"]
    monkeypatch.setattr(budgeting, "count_steps_within", lambda task, seconds, measured: (next(planned), 1.0))
    steps = []
    for fresh in (False, True):
        run = fit(source, tmp_path / "run", settings=few, budget="1s", fresh=fresh)
        steps += [choice.value for choice in run.choices if choice.key == "steps"]
    assert steps == ["2", "3"]


def test_other_data_in_the_same_place_is_refused(tmp_path):
    source = folder(tmp_path / "people", identities=6)
    few = [*QUICK, "steps=2", "pictures=false"]
    fit(source, tmp_path / "run", settings=few)
    folder(source, identities=1, first=20)
    with pytest.raises(ValueError, match=r"other settings \(source.*digest"):
        fit(source, tmp_path / "run", settings=few)
    assert fit(source, tmp_path / "run", settings=few, fresh=True).metrics["identities"] == 2


class TestBadInput:
    """Bad input gives one sentence and leaves no files behind."""

    @pytest.fixture(autouse=True)
    def _left(self, tmp_path):
        yield
        assert not (tmp_path / "run").exists()

    def refused(self, source, tmp_path, message, *overrides):
        with pytest.raises((DataError, ValueError), match=message) as error:
            fit(source, tmp_path / "run", settings=[*QUICK, *overrides])
        assert "\n" not in str(error.value)

    def test_no_folder(self, tmp_path):
        self.refused(tmp_path / "none", tmp_path, "there is no file or folder")

    def test_an_empty_folder(self, tmp_path):
        (tmp_path / "empty").mkdir()
        self.refused(tmp_path / "empty", tmp_path, "holds no picture")

    def test_one_identity(self, tmp_path):
        self.refused(folder(tmp_path / "one", 1), tmp_path, r"holds one identity \(id00\); at least 2 are needed")

    def test_too_few_to_hold_some_out(self, tmp_path):
        self.refused(
            folder(tmp_path / "three", 3), tmp_path, "holds 3 identities with at least 2 pictures; 4 are needed"
        )

    def test_one_picture_each(self, tmp_path):
        self.refused(folder(tmp_path / "single", 8, 1), tmp_path, "holds 0 identities with at least 2 pictures")

    def test_a_text_called_jpg(self, tmp_path):
        source = folder(tmp_path / "people", 5)
        (source / "id00" / "note.jpg").write_text("hello")
        self.refused(source, tmp_path, r"note.jpg cannot be read: found 5 bytes .*; remove it, or .* on_error=skip")

    def test_a_table_with_a_missing_path(self, tmp_path):
        source = SOURCES["table"](tmp_path / "t")
        source.write_text(source.read_text() + "files/gone.png,id00\n")
        self.refused(source, tmp_path, r"row 62: there is no file .*gone.png")

    def test_a_full_disk(self, tmp_path, monkeypatch):
        source = folder(tmp_path / "people", 5)
        monkeypatch.setattr(fit_module.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 5_000_000}))
        self.refused(source, tmp_path, "the disk of .* is full: 5 MB are free")

    def test_a_folder_that_cannot_be_written(self, tmp_path, monkeypatch):
        source = folder(tmp_path / "people", 5)
        monkeypatch.setattr(fit_module.os, "access", lambda path, mode: False)
        self.refused(source, tmp_path, "cannot be written: choose another folder")

    @pytest.mark.parametrize("below", [False, True])
    def test_a_folder_that_cannot_be_read(self, below, tmp_path, monkeypatch):
        source = folder(tmp_path / "people", 5)
        forbidden = source / "id03" if below else source

        def refuse(name):
            def read(path, *rest):
                if pathlib.Path(path) == forbidden:
                    raise PermissionError(13, "Permission denied", str(path))
                return original(path, *rest)

            holder = os if name == "scandir" else pathlib.Path
            original = getattr(holder, name)
            monkeypatch.setattr(holder, name, read)

        refuse("scandir")
        refuse("iterdir")
        self.refused(source, tmp_path, "the folder .*people.* cannot be read: Permission denied")

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ("stepps=3", "there is no key stepps.*did you mean steps"),
            ("head=ArcFac", "head must be one of .*did you mean ArcFace"),
            ("validation=2", r"validation must lie in \[0, 1\)"),
            ("size=1,2,3", "size must be one number or height and width"),
            ("backbone=resnet2", "backbone must be one of .*did you mean resnet"),
        ],
    )
    def test_wrong_settings(self, wrong, message, tmp_path, pictures):
        self.refused(pictures, tmp_path, message, wrong)

    def test_a_file_in_the_way(self, tmp_path, pictures):
        (tmp_path / "file").write_text("")
        with pytest.raises(ValueError, match="is a file: choose another folder"):
            fit(pictures, tmp_path / "file")


def test_unreadable_pictures_are_left_out_when_asked(tmp_path):
    source = folder(tmp_path / "people", 5)
    (source / "id00" / "note.jpg").write_text("hello")
    run = fit(source, tmp_path / "run", settings=[*QUICK, "steps=2", "pictures=false", "on_error=skip"])
    assert list(run.check["unreadable"]) == [str(source / "id00" / "note.jpg")]
    assert run.check["images"] == 30


def test_validation_of_zero_measures_who_is_trained_on(tmp_path):
    source = folder(tmp_path / "people", 3)
    run = fit(source, tmp_path / "run", validation=0, settings=[*QUICK, "steps=2", "pictures=false"])
    assert run.metrics["identities"] == 3
    assert "measures the training identities" in next(c.reason for c in run.choices if c.key == "validation")


def test_the_folder_is_named_after_the_source(tmp_path, monkeypatch):
    source = folder(tmp_path / "people", 4)
    monkeypatch.chdir(tmp_path)
    assert str(fit(source, settings=[*QUICK, "steps=1", "pictures=false"]).folder) == "runs/people"


def test_the_report_is_computed_once_and_each_picture_decoded_at_most_twice(tmp_path, monkeypatch):
    source = folder(tmp_path / "people", 8, 4)
    decoded, reports = [], []
    results = importlib.import_module("hypersphere.training.fitting.run")
    compute, opened = results.open_set_report, Image.open
    monkeypatch.setattr(results, "open_set_report", lambda *a, **k: reports.append(1) or compute(*a, **k))
    monkeypatch.setattr(Image, "open", lambda *a, **k: decoded.append(1) or opened(*a, **k))
    run = fit(source, tmp_path / "run", settings=[*QUICK, "steps=1", "pictures=false"])
    assert run.report.eer >= 0
    assert len(reports) == 1
    assert 32 <= len(decoded) <= 64


def test_a_run_is_opened_without_trust(fitted):
    assert not Run(fitted[0].folder).trust
    assert Run(fitted[0].folder, trust=True).trust


def test_trained_identities_are_not_called_unseen(tmp_path):
    run = fit(
        folder(tmp_path / "people", 3), tmp_path / "run", validation=0, settings=[*QUICK, "steps=1", "pictures=false"]
    )
    assert "unseen" not in str(run.report)
    assert "unseen" not in str(Run(run.folder).report)
    assert "unseen" not in (run.folder / "report.json").read_text()


def test_the_page_shows_samples_of_the_report(fitted):
    run, _ = fitted
    evidence = Evidence.load(run.folder / EVIDENCE)
    stored = load_file(run.folder / "held_out.safetensors")
    chosen = choose_samples(stored["labels"])
    assert evidence.total == len(stored["labels"])
    assert evidence.images is not None
    assert torch.equal(evidence.labels, stored["labels"][chosen])
    torch.testing.assert_close(evidence.features, stored["features"][chosen].float())
