"""Train your own network with the trainer, which adds checkpoints, resuming, logs and metrics."""

import pathlib
import tempfile

import torch
from torch import nn

import hypersphere as hs
from hypersphere.training import Classification, Settings, Trainer, call

torch.manual_seed(0)
network = nn.Sequential(
    *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 32)),
)
task = Classification(
    network,
    hs.CosFace(32, 10, m=0.2, scale=16.0),
    train=hs.data.Digits(train=True),
    measured=hs.data.Digits(train=False),
    preprocessing=hs.data.PicturePreprocessing(size=(8, 8), channels=1, mean=0.3, std=1.0),
    batch_size=64,
)
settings = Settings(
    steps=150, evaluate_every=75, log_every=75, pictures=False, threads=1, optimizer=call(torch.optim.Adam, lr=3e-3)
)
with tempfile.TemporaryDirectory() as folder:
    metrics = Trainer(task, folder, settings).run()  # the same line resumes an interrupted run
    files = sorted(path.name for path in pathlib.Path(folder).iterdir())
print(f"accuracy {metrics['accuracy']:.1f} %; the folder contains {', '.join(files)}")
assert metrics["accuracy"] > 90
