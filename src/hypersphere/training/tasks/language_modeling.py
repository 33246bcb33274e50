"""Language modeling: predict the next token of a sequence."""

import math
import pathlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from ...data import Loader
from ...files import write_atomically
from ..averaging import renormalize_weights
from ..datasets import as_samples
from .task import Task, sum_losses


class LanguageModeling(Task):
    """A causal model trained to predict each next token, measured by its mean loss on other text.

    Args:
        model: Maps tokens ``(batch, tokens)`` to logits of the next ones, such as
            :class:`~hypersphere.models.NGPTLanguageModel`. A method ``renormalize_`` is called after every step.
        train: Windows of tokens whose label is the token that follows, such as :class:`~hypersphere.data.PythonDocs`.
        measured: Windows to measure; None measures the training windows.
        regularizers: Terms of the weights, with ``terms`` and ``step``.
        batch_size: Windows per batch, of all processes together.
        seed: Seed of the batches.

    >>> from hypersphere.training import LanguageModeling
    >>> windows = hs.data.InMemory(torch.randint(5, (20, 8)), torch.randint(5, (20,)), "abcde")
    >>> task = LanguageModeling(hs.models.NGPTLanguageModel(5, depth=1, dim=8, heads=2), windows, batch_size=4)
    >>> loss, parts = task(0, *next(iter(task.loader)))
    >>> list(parts), list(task.eval().evaluate())
    (['objective'], ['cross_entropy', 'bits_per_token', 'perplexity'])
    """

    def __init__(
        self,
        model: nn.Module,
        train: Any,
        measured: Any = None,
        *,
        regularizers: Sequence[nn.Module] = (),
        batch_size: int = 32,
        seed: int = 0,
    ):
        super().__init__()
        if batch_size < 1:
            raise ValueError(f"batch_size must be an integer ≥ 1, got {batch_size!r}")
        self.model = model
        self.train_samples = as_samples(train, "train")
        self.measured_samples = self.train_samples if measured is None else as_samples(measured, "measured")
        self.regularizers = nn.ModuleList(regularizers)
        batch = min(batch_size, len(self.train_samples))
        self.loader = Loader(self.train_samples, batch, seed, drop_last=True)

    def forward(self, step: int, *batch: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the mean cross-entropy of the next tokens plus the regularizers, and its parts."""
        return sum_losses({"objective": self.compute_token_losses(*batch).mean()}, self.regularizers)

    def compute_token_losses(
        self, windows: Shaped[Tensor, "batch tokens"], following: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch tokens"]:
        """Return −log p of the token that follows each token of the windows, in nats."""
        windows = windows.long()
        targets = torch.cat([windows[:, 1:], following[:, None]], 1)
        logits = self.model(windows)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)

    def advance(self, step: int) -> None:
        """Advance the regularizers, and normalize the weights of a model on the sphere."""
        super().advance(step)
        renormalize_weights(self.model)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return the mean loss per token in nats, the same in bits, and the perplexity."""
        total, count = 0.0, 0
        for index in torch.arange(len(self.measured_samples)).split(256):
            windows, following = (part.to(self.device) for part in self.measured_samples.batch(index))
            losses = self.compute_token_losses(windows, following)
            total, count = total + losses.double().sum().item(), count + losses.numel()
        loss = total / count
        return {"cross_entropy": loss, "bits_per_token": loss / math.log(2), "perplexity": math.exp(min(loss, 700.0))}

    @torch.no_grad()
    def pictures(self, folder: pathlib.Path) -> None:
        """Write ``sample.txt``: the first measured window and the text with which the model continues it."""
        generate = getattr(self.model, "generate", None)
        if not callable(generate):
            return
        window = self.measured_samples.batch(torch.arange(1))[0].long().to(self.device)
        length = window.shape[1]
        source = torch.Generator(self.device).manual_seed(0)
        tokens = generate(window, 4 * length, context=length, generator=source)[0].tolist()
        names = self.measured_samples.classes
        text = "".join(names[token] for token in tokens[:length]) + "⟩" + "".join(names[t] for t in tokens[length:])
        write_atomically(folder / "sample.txt", lambda path: pathlib.Path(path).write_text(text, encoding="utf-8"))

    def summary(self) -> dict[str, Any]:
        """Return the sizes of both texts, of the vocabulary and of the model."""
        return {
            "training windows": len(self.train_samples),
            "measured windows": len(self.measured_samples),
            "vocabulary": len(self.train_samples.classes),
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
        }
