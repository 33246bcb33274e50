"""Experiment trackers of accelerate get every row of the log."""

import pathlib

import accelerate.tracking
import pytest
import torch
from torch import nn

from hypersphere.data import InMemory, PicturePreprocessing
from hypersphere.objectives import CosFace
from hypersphere.training import Classification, Settings, Trainer, read_log


class Recorder(accelerate.tracking.GeneralTracker):
    """A tracker that records its input."""

    name = "recorder"
    requires_logging_directory = True
    made: list["Recorder"] = []  # noqa: RUF012

    def __init__(self, run_name: str, logging_dir: pathlib.Path | None = None, **kwargs: object):
        super().__init__()
        self.run_name, self.folder = run_name, logging_dir
        self.config: dict[str, object] = {}
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.finished = False
        Recorder.made.append(self)

    @property
    def tracker(self) -> "Recorder":
        return self

    def store_init_configuration(self, values: dict[str, object]) -> None:
        self.config = values

    def log(self, values: dict[str, float], step: int | None = None, **kwargs: object) -> None:
        assert step is not None
        self.rows.append((step, values))

    def finish(self) -> None:
        self.finished = True


def trainer(folder: pathlib.Path, trackers: tuple[str, ...], steps: int = 3) -> Trainer:
    pixels = torch.arange(32 * 16).mul(37).remainder(256).to(torch.uint8).view(32, 1, 4, 4)
    data = InMemory(pixels, torch.arange(32) % 4, tuple("abcd"))
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 8))
    preprocessing = PicturePreprocessing(size=(4, 4), channels=1)
    task = Classification(network, CosFace(8, 4), data, data, batch_size=8, preprocessing=preprocessing)
    settings = Settings(
        steps=steps, log_every=1, evaluate_every=3, checkpoint_every=3, pictures=False, threads=1, trackers=trackers
    )
    return Trainer(task, folder, settings)


def test_a_tracker_receives_the_settings_and_every_row(tmp_path, monkeypatch):
    monkeypatch.setitem(accelerate.tracking.LOGGER_TYPE_TO_CLASS, "recorder", Recorder)
    Recorder.made.clear()
    trainer(tmp_path / "run", ("recorder",)).run()
    (recorder,) = Recorder.made
    assert recorder.finished
    assert recorder.folder == tmp_path / "run"
    assert recorder.config["settings.steps"] == 3
    expected = [(row.pop("step"), row) for row in read_log(tmp_path / "run")]
    assert recorder.rows == expected


def test_trackers_do_not_belong_to_the_settings_that_a_resumed_run_must_share(tmp_path):
    trainer(tmp_path / "run", ()).run()
    before = read_log(tmp_path / "run")
    trainer(tmp_path / "run", ("tensorboard",)).run()
    assert read_log(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "trackers must be some of .*wandb.*, got 'nothing'"),
        ("wandb", "wandb is not installed: pip install"),
    ],
)
def test_an_unknown_or_missing_tracker_is_refused(name, message, tmp_path, monkeypatch):
    monkeypatch.setattr(accelerate.tracking, "get_available_trackers", list)
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path / "run", (name,))
