"""The file formats of peft for the learned changes of each method."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .adapter import Adapter
from .block_rotation import BlockRotation, expand_skew
from .butterfly_rotation import ButterflyRotation
from .low_rank import LowRank
from .reflection_rotation import ReflectionRotation
from .rotated import Rotated
from .tuning_method import TuningMethod, TuningName

Tensors = Mapping[str, Tensor]


class PeftFormat(ABC):
    """The tensors and settings of one method of peft.

    Attributes:
        names: The endings of the tensors' names.
        required: Settings with only one supported value, and the reason why other values are refused.
    """

    names: ClassVar[tuple[str, ...]]
    required: ClassVar[Mapping[str, tuple[Any, str]]] = {}

    def explain_layer(self, module: nn.Module, kind: type[nn.Module]) -> str | None:
        """Return why peft and this library differ for a layer, or None."""
        if isinstance(module, nn.Conv2d):
            if module.groups != 1:
                return "peft has no adapter for grouped convolutions"
            if len(set(module.kernel_size)) > 1:
                return f"peft treats the kernel {tuple(module.kernel_size)} as a square one"
            return None
        if kind is nn.Linear:
            return None
        return f"peft and this library agree only about Linear and Conv2d layers, got a {kind.__name__}"

    @abstractmethod
    def configure(self, adapters: Mapping[str, Adapter]) -> dict[str, Any]:
        """Return the settings of the adapters, which are given by layer name."""

    @abstractmethod
    def write(self, adapter: Adapter, module: nn.Module) -> dict[str, Tensor]:
        """Return the tensors of one layer by name ending."""

    @abstractmethod
    def read_method(self, config: Mapping[str, Any], tensors: Tensors) -> TuningMethod:
        """Return the method of one layer from the settings and its tensors."""

    @abstractmethod
    def read(self, adapter: Adapter, tensors: Tensors, config: Mapping[str, Any]) -> None:
        """Copy the tensors of one layer into its adapter."""

    def refuse_settings(self, config: Mapping[str, Any]) -> None:
        """Raise a ValueError for a setting that is not supported."""
        if config.get("bias", "none") != "none":
            raise ValueError(f"the adapter has bias={config['bias']!r}, so it also changes biases of the base")
        for key, (value, reason) in self.required.items():
            if config.get(key, value) != value:
                raise ValueError(f"the adapter has {key}={config[key]!r}: {reason}")


class OFTFormat(PeftFormat):
    """Block-diagonal rotations; peft's exact transform is (I − Q)(I + Q)⁻¹, with the opposite sign of its series."""

    names = ("oft_R.weight",)
    required: ClassVar = {
        "coft": (False, "peft projects the generators during training by a different rule"),
    }

    def explain_layer(self, module: nn.Module, kind: type[nn.Module]) -> str | None:
        """Return why peft and this library differ for a layer, or None."""
        if isinstance(module, nn.Conv2d) and max(module.kernel_size) > 1:
            return (
                "peft's OFT rotates the patches under a kernel and adds overlapping patches, which is neither a rotation of "
                "the filters nor equal to the result of its own merge"
            )
        return super().explain_layer(module, kind)

    def configure(self, adapters: Mapping[str, Adapter]) -> dict[str, Any]:
        """Return the block size and the transform."""
        blocks = {name: _get_inputs(adapter, BlockRotation).block for name, adapter in adapters.items()}
        terms = next(iter(adapters.values())).method.terms
        series = {"use_cayley_neumann": terms is not None, "num_cayley_neumann_terms": (terms or 3) + 2}
        return {
            "r": 0,
            "oft_block_size": _get_common("block size", blocks),
            "coft": False,
            "block_share": False,
        } | series

    def write(self, adapter: Adapter, module: nn.Module) -> dict[str, Tensor]:
        """Return the generators."""
        _refuse_lengths(adapter)
        inputs = _get_inputs(adapter, BlockRotation)
        sign = -1 if inputs.terms is None else 1
        return {"oft_R.weight": sign * inputs.get_generators()[0]}

    def read_method(self, config: Mapping[str, Any], tensors: Tensors) -> TuningMethod:
        """Return OFT with the block size of the tensors."""
        entries = tensors["oft_R.weight"].shape[1]
        terms = None
        if config.get("use_cayley_neumann", True):
            count = config.get("num_cayley_neumann_terms", 5)
            if count % 2 or count < 4:
                raise ValueError(
                    f"the adapter uses a Cayley–Neumann series of {count} terms, whose R is not orthogonal enough: train with "
                    "use_cayley_neumann=False or with an even num_cayley_neumann_terms ≥ 4"
                )
            terms = count - 2
        return TuningMethod("oft", block=_count_rows(entries), terms=terms)

    def read(self, adapter: Adapter, tensors: Tensors, config: Mapping[str, Any]) -> None:
        """Copy the generators; a shared block is copied to all blocks."""
        inputs = _get_inputs(adapter, BlockRotation)
        sign = -1 if inputs.terms is None else 1
        weight = sign * tensors["oft_R.weight"]
        _copy(inputs.raw[0], weight.expand(inputs.raw.shape[1], -1) if len(weight) == 1 else weight)


class BOFTFormat(PeftFormat):
    """Butterfly factors with a length for each neuron."""

    names = ("boft_R", "boft_s")

    def configure(self, adapters: Mapping[str, Adapter]) -> dict[str, Any]:
        """Return the block size and the number of factors."""
        rotations = {name: _get_inputs(adapter, ButterflyRotation) for name, adapter in adapters.items()}
        factors = _get_common("number of factors", {name: rotation.factors for name, rotation in rotations.items()})
        _refuse_factors(factors)
        if any(rotation.terms is not None for rotation in rotations.values()):
            raise ValueError("peft's BOFT supports only the exact Cayley transform: terms must be None")
        block = _get_common("block size", {name: rotation.block for name, rotation in rotations.items()})
        return {"boft_block_size": block, "boft_block_num": 0, "boft_n_butterfly_factor": factors}

    def write(self, adapter: Adapter, module: nn.Module) -> dict[str, Tensor]:
        """Return the skew-symmetric generators and the lengths."""
        rotation = _get_inputs(adapter, ButterflyRotation)
        lengths = _get_change(adapter).lengths
        ones = torch.ones(adapter.layout.neurons, 1)
        return {
            "boft_R": -expand_skew(rotation.raw[:, 0], rotation.block),
            "boft_s": ones if lengths is None else lengths[0],
        }

    def read_method(self, config: Mapping[str, Any], tensors: Tensors) -> TuningMethod:
        """Return BOFT with the sizes of the tensors, and with lengths unless all are 1."""
        factors, _, block, _ = tensors["boft_R"].shape
        _refuse_factors(factors)
        lengths = bool((tensors["boft_s"] != 1).any())
        return TuningMethod("boft", block=block, factors=factors, lengths=lengths)

    def read(self, adapter: Adapter, tensors: Tensors, config: Mapping[str, Any]) -> None:
        """Copy the generators and the lengths."""
        rotation = _get_inputs(adapter, ButterflyRotation)
        data = tensors["boft_R"]
        i, j = torch.triu_indices(rotation.block, rotation.block, 1)
        _copy(rotation.raw[:, 0], ((data.mT - data) / 2)[..., i, j])
        lengths = _get_change(adapter).lengths
        if lengths is not None:
            _copy(lengths[0], tensors["boft_s"])


class HRAFormat(PeftFormat):
    """Reflections; peft multiplies them in the opposite order."""

    names = ("hra_u",)
    required: ClassVar = {"apply_GS": (False, "the vectors of the reflections are orthogonalized first")}

    def configure(self, adapters: Mapping[str, Adapter]) -> dict[str, Any]:
        """Return the number of reflections."""
        ranks = {name: _get_inputs(adapter, ReflectionRotation).rank for name, adapter in adapters.items()}
        return {"r": _get_common("number of reflections", ranks), "apply_GS": False}

    def write(self, adapter: Adapter, module: nn.Module) -> dict[str, Tensor]:
        """Return the vectors."""
        _refuse_lengths(adapter)
        return {"hra_u": _get_inputs(adapter, ReflectionRotation).raw[0].flip(1)}

    def read_method(self, config: Mapping[str, Any], tensors: Tensors) -> TuningMethod:
        """Return HRA with the number of vectors, which must be even."""
        return TuningMethod("hra", rank=tensors["hra_u"].shape[1])

    def read(self, adapter: Adapter, tensors: Tensors, config: Mapping[str, Any]) -> None:
        """Copy the vectors."""
        _copy(_get_inputs(adapter, ReflectionRotation).raw[0], tensors["hra_u"].flip(1))


class LoRAFormat(PeftFormat):
    """Low-rank changes: LoRA, DoRA, and NoRA as a LoRA with normalized A."""

    names = ("lora_A.weight", "lora_B.weight", "lora_magnitude_vector")
    required: ClassVar = {
        "rank_pattern": ({}, "layers have different ranks"),
        "alpha_pattern": ({}, "layers have different scales"),
        "lora_bias": (False, "B has a bias"),
        "use_qalora": (False, "inputs are pooled before A"),
        "use_bdlora": (None, "A and B are block-diagonal"),
        "target_parameters": (None, "it changes parameters other than weights of layers"),
        "trainable_token_indices": (None, "it changes rows of an embedding"),
        "alora_invocation_tokens": (None, "it changes only some of the tokens"),
        "layer_replication": (None, "layers of the base are repeated"),
        "loftq_config": ({}, "it also changed weights of the base"),
        "arrow_config": (None, "it mixes several adapters for each token"),
        "monteclora_config": (None, "its weights are random samples"),
        "kasa_config": (None, "it also changed weights of the base"),
    }

    def explain_layer(self, module: nn.Module, kind: type[nn.Module]) -> str | None:
        """Return why peft and this library differ for a layer, or None; kernels need not be square."""
        is_supported = isinstance(module, nn.Conv2d) and module.groups == 1
        return None if is_supported else super().explain_layer(module, kind)

    def refuse_settings(self, config: Mapping[str, Any]) -> None:
        """Raise a ValueError for a setting that is not supported, such as an initialization that changed the base."""
        super().refuse_settings(config)
        start = config.get("init_lora_weights", True)
        if start not in (True, False, "gaussian", "eva", "orthogonal"):
            raise ValueError(f"the adapter has init_lora_weights={start!r}, which also changed weights of the base")

    def configure(self, adapters: Mapping[str, Adapter]) -> dict[str, Any]:
        """Return the rank and the scale."""
        changes = {name: _get_low_rank(adapter) for name, adapter in adapters.items()}
        rank = _get_common("rank", {name: change.rank for name, change in changes.items()})
        dora = any(isinstance(getattr(change, "lengths", None), Tensor) for change in changes.values())
        scale = next(iter(changes.values())).scale
        return {"r": rank, "lora_alpha": scale * rank, "use_dora": dora, "lora_dropout": 0.0, "use_rslora": False}

    def write(self, adapter: Adapter, module: nn.Module) -> dict[str, Tensor]:
        """Return A, B and, for DoRA, the lengths."""
        change = _get_low_rank(adapter)
        down, up = change.get_down()[0], change.up[0]
        if isinstance(module, nn.Conv2d):
            down, up = down.unflatten(1, module.weight.shape[1:]), up[..., None, None]
        lengths = getattr(change, "lengths", None)
        result = {"lora_A.weight": down, "lora_B.weight": up}
        if lengths is not None:
            shape = (1, -1, 1, 1) if isinstance(module, nn.Conv2d) else (-1,)
            result["lora_magnitude_vector"] = lengths.reshape(shape)
        return result

    def read_method(self, config: Mapping[str, Any], tensors: Tensors) -> TuningMethod:
        """Return LoRA or DoRA with the rank of the tensors."""
        rank = tensors["lora_A.weight"].shape[0]
        alpha = float(config.get("lora_alpha", 8)) * (math.sqrt(rank) if config.get("use_rslora") else 1)
        name: TuningName = "dora" if "lora_magnitude_vector" in tensors else "lora"
        return TuningMethod(name, rank=rank, alpha=alpha)

    def read(self, adapter: Adapter, tensors: Tensors, config: Mapping[str, Any]) -> None:
        """Copy A, B and the lengths."""
        change = _get_low_rank(adapter)
        _copy(change.down[0], tensors["lora_A.weight"].flatten(1))
        _copy(change.up[0], tensors["lora_B.weight"].flatten(1))
        if "lora_magnitude_vector" in tensors:
            lengths = change.get_parameter("lengths")
            _copy(lengths.view(-1), tensors["lora_magnitude_vector"].flatten())


FORMATS: dict[str, PeftFormat] = {"OFT": OFTFormat(), "BOFT": BOFTFormat(), "HRA": HRAFormat(), "LORA": LoRAFormat()}
# The kind of peft's adapter for each method of this library; peft has none for POET.
WRITTEN_AS = {
    "oft": "OFT",
    "coft": "OFT",
    "boft": "BOFT",
    "hra": "HRA",
    "lora": "LORA",
    "nora": "LORA",
    "dora": "LORA",
}


def _get_change(adapter: Adapter) -> Rotated:
    assert isinstance(adapter.change, Rotated)
    return adapter.change


def _get_inputs(adapter: Adapter, kind: Any) -> Any:
    inputs = _get_change(adapter).inputs
    assert isinstance(inputs, kind)
    return inputs


def _get_low_rank(adapter: Adapter) -> LowRank:
    assert isinstance(adapter.change, LowRank)
    return adapter.change


def _get_common(name: str, values: Mapping[str, int]) -> int:
    """Return the common value of all layers; raise a ValueError if they differ, because peft has only one."""
    if len(set(values.values())) > 1:
        examples = ", ".join(f"{layer!r} {value}" for layer, value in list(values.items())[:4])
        raise ValueError(f"peft has one {name} for all layers, but they differ: {examples}")
    return next(iter(values.values()))


def _refuse_factors(factors: int) -> None:
    if factors > 2:
        raise ValueError(
            f"the adapter has {factors} butterfly factors: peft's factors from the third on mix the same half blocks as its "
            "second factor, so the product is not a butterfly"
        )


def _refuse_lengths(adapter: Adapter) -> None:
    if _get_change(adapter).lengths is not None:
        raise ValueError(f"peft has no learned lengths for {adapter.method.name!r}: use BOFT, or lengths=False")


def _count_rows(entries: int) -> int:
    """Return b for b(b − 1)/2 entries above the diagonal."""
    rows = (1 + math.isqrt(1 + 8 * entries)) // 2
    if rows * (rows - 1) // 2 != entries:
        raise ValueError(f"oft_R.weight has {entries} entries per row, which is not b(b − 1)/2 for any block size b")
    return rows


def _copy(target: Tensor, value: Tensor) -> None:
    if target.shape != value.shape:
        raise ValueError(
            f"a tensor of the adapter has shape {tuple(value.shape)}, the layer needs {tuple(target.shape)}"
        )
    with torch.no_grad():
        target.copy_(value)
