r"""Two small language models of the same size: nGPT, whose states and weights are directions, and a GPT to compare it with.

Both have rotary positions, gated perceptrons without biases, and an output layer that is not tied to the embedding. The GPT
normalizes the input of every layer by its root mean square and adds the output to an unbounded state, h ← h + layer(norm(h)).
nGPT (arXiv:2410.01131) has no such normalization; its states have length 1. The GPT must not normalize the state that is passed
on, h ← norm(h) + …. This mistake in the published baseline (issue 1 of NVIDIA/ngpt) made large learning rates diverge.
"""

import math
from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..operators.attention_heads import join_heads, split_heads
from ._ngpt import NGPTBlock
from .blocks import make_layers
from .ngpt_layers import StepSize, make_rotation, renormalize_weights, rotate_by_position


class LanguageModel(nn.Module, ABC):
    """A causal model of token sequences: ``model(tokens)`` returns the logits of each next token.

    Args:
        vocabulary: Number of different tokens.
        depth: Number of blocks.
        dim: Dimension of the hidden states.
        heads: Number of attention heads; ``dim / heads`` must be even, because rotary positions rotate pairs of dimensions.
    """

    def __init__(self, vocabulary: int, depth: int, dim: int, heads: int):
        super().__init__()
        if min(vocabulary, depth, dim, heads) < 1 or dim % (2 * heads):
            raise ValueError(
                "vocabulary, depth, dim and heads must be integers ≥ 1 and dim a multiple of 2·heads; "
                f"got {vocabulary}, {depth}, {dim}, {heads}"
            )
        self.vocabulary, self.head_dim = vocabulary, dim // heads

    @abstractmethod
    def states(self, tokens: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens dim"]:
        """Return the hidden states after the last block."""

    @abstractmethod
    def logits(self, states: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch tokens vocabulary"]:
        """Return the scores of each next token."""

    def forward(self, tokens: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens vocabulary"]:
        """Return the scores of the token that follows each one; no position sees later tokens."""
        return self.logits(self.states(tokens))

    @torch.no_grad()
    def generate(
        self, tokens: Int[Tensor, "batch tokens"], count: int, *, context: int, generator: torch.Generator | None = None
    ) -> Int[Tensor, "batch longer"]:
        """Continue sequences with tokens drawn from the predicted probabilities.

        Args:
            tokens: Sequences of one or more tokens.
            count: Number of tokens to draw.
            context: Number of last tokens that the model sees, at most that of its training.
            generator: Source of randomness.

        Returns:
            The sequences with ``count`` more tokens.

        >>> model = GPTLanguageModel(5, depth=1, dim=8, heads=2)
        >>> model.generate(torch.zeros(1, 1, dtype=torch.long), 3, context=4).shape
        torch.Size([1, 4])
        """
        for _ in range(count):
            probabilities = self(tokens[:, -context:])[:, -1].softmax(-1)
            tokens = torch.cat([tokens, torch.multinomial(probabilities, 1, generator=generator)], 1)
        return tokens

    def _build_mask_and_rotation(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the causal mask and the rotation of the positions of a sequence."""
        count = tokens.shape[1]
        mask = torch.full((count, count), -math.inf, device=tokens.device).triu(1)
        return mask, make_rotation(count, self.head_dim, device=tokens.device)


class NGPTLanguageModel(LanguageModel):
    r"""nGPT for token sequences (arXiv:2410.01131): embeddings, states and weight vectors have length 1.

    Logits are cosines between the state and the output vectors, each times a learned scale. Call :meth:`renormalize_`
    after every step of the optimizer; ``hypersphere.training`` does so. Train it without weight decay and warmup.

    Args:
        vocabulary: Number of different tokens.
        depth: Number of blocks.
        dim: Dimension of the hidden states.
        heads: Number of attention heads.
        hidden: Neurons of the gated perceptron per dimension; 8/3 makes it as large as a plain one with 4.
        step: Initial value of α; None stands for the larger of 1/``depth`` and 0.05.

    >>> model = NGPTLanguageModel(30, depth=2, dim=16, heads=2)
    >>> tokens = torch.randint(30, (2, 5))
    >>> model(tokens).shape, torch.allclose(model.states(tokens).norm(dim=-1), torch.ones(2, 5))
    (torch.Size([2, 5, 30]), True)
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        depth: int = 4,
        dim: int = 128,
        heads: int = 4,
        hidden: float = 8 / 3,
        step: float | None = None,
    ):
        super().__init__(vocabulary, depth, dim, heads)
        step = max(1 / depth, 0.05) if step is None else step
        layers = make_layers(norm=None, activation=nn.SiLU, init="normal")
        neurons = round(hidden * dim)
        self.embedding = nn.Embedding(vocabulary, dim)
        self.blocks = nn.ModuleList([NGPTBlock(dim, heads, neurons, layers, step) for _ in range(depth)])
        self.output = nn.Linear(dim, vocabulary, bias=False)
        self.output_scale = StepSize(vocabulary, 1.0, dim)
        self.renormalize_()

    def states(self, tokens: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens dim"]:
        """Return the states after the last block, of length 1."""
        mask, rotation = self._build_mask_and_rotation(tokens)
        h: Tensor = self.embedding(tokens)
        for block in self.blocks:
            h = block(h, mask, rotation)
        return h

    def logits(self, states: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch tokens vocabulary"]:
        """Return cosines with the output vectors times their scales."""
        scores: Tensor = self.output(states)
        return scores * self.output_scale()

    @torch.no_grad()
    def renormalize_(self) -> None:
        """Normalize every vector of embedding, blocks and output in place."""
        for layer in (self.embedding, self.output):
            renormalize_weights(layer, 0)
        for block in self.blocks:
            assert isinstance(block, NGPTBlock)
            block.renormalize_()


class GPTBlock(nn.Module):
    r"""One layer of a GPT: h ← h + attention(norm(h)), then h ← h + perceptron(norm(h)).

    Args:
        dim: Dimension of the hidden states.
        heads: Number of attention heads.
        hidden: Neurons of the gated perceptron.
    """

    def __init__(self, dim: int, heads: int, hidden: int):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.up, self.gate = (nn.Linear(dim, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(
        self,
        h: Float[Tensor, "batch tokens dim"],
        mask: Float[Tensor, "tokens tokens"],
        rotation: Float[Tensor, "tokens half 2"],
    ) -> Float[Tensor, "batch tokens dim"]:
        """Return the next states. Only the inputs of the layers are normalized, never the state that is passed on."""
        x = self.attention_norm(h)
        q, k, v = (split_heads(layer(x), self.heads) for layer in (self.query, self.key, self.value))
        q, k = (rotate_by_position(y, rotation) for y in (q, k))
        h = h + self.out(join_heads(F.scaled_dot_product_attention(q, k, v, mask)))
        x = self.mlp_norm(h)
        out: Tensor = h + self.down(self.up(x) * F.silu(self.gate(x)))
        return out


class GPTLanguageModel(LanguageModel):
    r"""A GPT with the layers and sizes of :class:`NGPTLanguageModel`: its baseline.

    Weights start as in GPT-2: N(0, ``init_std``²). Those of layers whose output is added to the state are divided by √(2·depth).
    Train it with weight decay and warmup.

    Args:
        vocabulary: Number of different tokens.
        depth: Number of blocks.
        dim: Dimension of the hidden states.
        heads: Number of attention heads.
        hidden: Neurons of the gated perceptron per dimension.
        init_std: Initial standard deviation of the weights; GPT-2 uses 0.02.

    >>> model = GPTLanguageModel(30, depth=2, dim=16, heads=2)
    >>> model(torch.randint(30, (2, 5))).shape
    torch.Size([2, 5, 30])
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        depth: int = 4,
        dim: int = 128,
        heads: int = 4,
        hidden: float = 8 / 3,
        init_std: float = 0.02,
    ):
        super().__init__(vocabulary, depth, dim, heads)
        if not init_std > 0:
            raise ValueError(f"init_std must be a number > 0, got {init_std!r}")
        self.embedding = nn.Embedding(vocabulary, dim)
        self.blocks = nn.ModuleList([GPTBlock(dim, heads, round(hidden * dim)) for _ in range(depth)])
        self.norm = nn.RMSNorm(dim)
        self.output = nn.Linear(dim, vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                writes = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=init_std / (math.sqrt(2 * depth) if writes else 1.0))

    def states(self, tokens: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens dim"]:
        """Return the normalized states after the last block."""
        mask, rotation = self._build_mask_and_rotation(tokens)
        h: Tensor = self.embedding(tokens)
        for block in self.blocks:
            h = block(h, mask, rotation)
        return self.norm(h)

    def logits(self, states: Float[Tensor, "batch tokens dim"]) -> Float[Tensor, "batch tokens vocabulary"]:
        """Return inner products with the output vectors."""
        scores: Tensor = self.output(states)
        return scores
