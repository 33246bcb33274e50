"""The contract of all tasks. The test of a new task inherits it and sets the config from which the task is built."""

import math

import torch

from hypersphere.training import Config, Task, build_task


class TaskContract:
    """Tests of a task. ``config`` is a small config with bundled data."""

    config: Config

    def build(self) -> Task:
        torch.manual_seed(self.config.seed)
        return build_task(self.config).train()

    def losses(self, task: Task, steps: int = 2) -> list[torch.Tensor]:
        """Return the losses of the first batches without training steps between them."""
        torch.manual_seed(1)
        batches = iter(task.loader)
        losses = []
        for step in range(steps):
            batch = next(batches, None)
            if batch is None:  # the end of an epoch
                batches = iter(task.loader)
                batch = next(batches)
            losses.append(task(step, *batch)[0])
        return losses

    def test_the_loss_is_a_finite_number(self):
        task = self.build()
        loss, parts = task(0, *next(iter(task.loader)))
        assert loss.shape == ()
        assert loss.isfinite()
        assert parts
        assert all(part.shape == () and part.isfinite() for part in parts.values())

    def test_the_gradient_reaches_every_parameter(self):
        task = self.build()
        for loss in self.losses(task):  # a GAN trains its two networks in turn, so it needs two steps
            loss.backward()
        missing = [
            name
            for name, p in task.named_parameters()
            if p.requires_grad and (p.grad is None or not p.grad.isfinite().all())
        ]
        assert missing == []

    def test_a_whole_task_uses_every_parameter_at_every_step(self):
        task = self.build()
        if task.has_unused_parameters:
            return
        self.losses(task, 1)[0].backward()
        assert all(p.grad is not None for p in task.parameters() if p.requires_grad)

    def test_measures_are_finite_and_have_the_monitored_one(self):
        task = self.build().eval()
        with torch.no_grad():
            measures = {**task.evaluate(), **task.measures()}
        assert self.config.monitor.lstrip("-") in measures
        assert all(isinstance(value, float) and math.isfinite(value) for value in measures.values())

    def test_its_state_is_all_there_is(self):
        task, other = self.build(), self.build()
        with torch.no_grad():
            for parameter in task.parameters():
                parameter.mul_(0.9)
        task.advance(1)
        other.load_state_dict(task.state_dict())
        assert torch.equal(torch.stack(self.losses(task)), torch.stack(self.losses(other)))

    def test_the_same_seed_gives_the_same_loss(self):
        assert torch.equal(torch.stack(self.losses(self.build())), torch.stack(self.losses(self.build())))

    def test_pictures_and_summary(self, tmp_path):
        task = self.build().eval()
        task.pictures(tmp_path)
        assert all(path.stat().st_size > 1000 for path in tmp_path.glob("*.png"))
        assert all(isinstance(value, int | float | str) for value in task.summary().values())
