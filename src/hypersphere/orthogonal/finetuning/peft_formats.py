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
        names: the endings of the tensors' names.
        required: settings whose other values change what the adapter computes, with the only value that is read here and
            the reason.
    """

    names: ClassVar[tuple[str, ...]]
    required: ClassVar[Mapping[str, tuple[Any, str]]] = {}

    def explain_layer(self, module: nn.Module, kind: type[nn.Module]) -> str | None:
        """Return why peft and this library differ for a layer, or None."""
        if isinstance(module, nn.Conv2d):
            if module.groups != 1:
                return "peft has no adapter for grouped convolutions"
            if len(set(module.kernel_size)) > 1:
                return f"peft takes the kernel {tuple(module.kernel_size)} for a square one"
            return None
        if kind is nn.Linear:
            return None
        return f"peft and this library agree about Linear and Conv2d layers only, and this is a {kind.__name__}"

    @abstractmethod
    def configure(self, adapters: Mapping[str, Adapter]) -> dict[str, Any]:
        """Return the settings for the adapters by layer name."""

    @abstractmethod
    def write(self, adapter: Adapter, module: nn.Module) -> dict[str, Tensor]:
        """Return the tensors of one layer by the ending of their names."""

    @abstractmethod
    def read_method(self, config: Mapping[str, Any], tensors: Tensors) -> TuningMethod:
        """Return the method of one layer from the settings and its tensors."""

    @abstractmethod
    def read(self, adapter: Adapter, tensors: Tensors, config: Mapping[str, Any]) -> None:
        """Copy the tensors of one layer into its adapter."""

    def refuse_settings(self, config: Mapping[str, Any]) -> None:
        """Raise a ValueError for a setting that cannot be read."""
        if config.get("bias", "none") != "none":
            raise ValueError(f"the adapter has bias={config['bias']!r}, so it changes biases of the base as well")
        for key, (value, reason) in self.required.items():
            if config.get(key, value) != value:
                raise ValueError(f"the adapter has {key}={config[key]!r}: {reason}")


class OFTFormat(PeftFormat):
    """Block-diagonal rotations; peft's exact transform is (I − Q)(I + Q)⁻¹, with the opposite sign of its series."""

    names = ("oft_R.weight",)
    required: ClassVar = {
        "coft": (False, "peft shortens the generators while it runs, by a rule of its own"),
    }

    def explain_layer(self, module: nn.Module, kind: type[nn.Module]) -> str | None:
        """Return why peft and this library differ for a layer, or None."""
        if isinstance(module, nn.Conv2d) and max(module.kernel_size) > 1:
            return (
                "peft's OFT rotates the patches under a kernel and adds them where they overlap, which is no rotation of "
                "the filters and not what its own merge computes"
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
                    f"the adapter uses a Cayley–Neumann series of {count} terms, whose R is not orthogonal: its error falls "
                    "with half the power that a series of an even number of terms has. Train with use_cayley_neumann=False "
                    "or an even num_cayley_neumann_terms"
                )
            terms = count - 2
        return TuningMethod("oft", block=_count_rows(entries), terms=terms)

    def read(self, adapter: Adapter, tensors: Tensors, config: Mapping[str, Any]) -> None:
        """Copy the generators; shared blocks are repeated."""
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
            raise ValueError("peft's BOFT has the exact Cayley transform only: terms must be None")
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
        """Return BOFT with the sizes of the tensors, with lengths if they are not all 1."""
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
    """Low-rank changes: LoRA, DoRA, and NoRA as a LoRA whose A is normalized already."""

    names = ("lora_A.weight", "lora_B.weight", "lora_magnitude_vector")
    required: ClassVar = {
        "rank_pattern": ({}, "layers have ranks of their own"),
        "alpha_pattern": ({}, "layers have scales of their own"),
        "lora_bias": (False, "B has a bias"),
        "use_qalora": (False, "inputs are pooled before A"),
        "use_bdlora": (None, "A and B are block-diagonal"),
        "target_parameters": (None, "it changes parameters that are no layer's weight"),
        "trainable_token_indices": (None, "it changes rows of an embedding"),
        "alora_invocation_tokens": (None, "it acts on a part of the tokens"),
        "layer_replication": (None, "layers of the base are repeated"),
        "loftq_config": ({}, "weights of the base were changed as well"),
        "arrow_config": (None, "several adapters are mixed for each token"),
        "monteclora_config": (None, "it samples its weights"),
        "kasa_config": (None, "weights of the base were changed as well"),
    }

    def explain_layer(self, module: nn.Module, kind: type[nn.Module]) -> str | None:
        """Return why peft and this library differ for a layer, or None; kernels need not be square."""
        square = isinstance(module, nn.Conv2d) and module.groups == 1
        return None if square else super().explain_layer(module, kind)

    def refuse_settings(self, config: Mapping[str, Any]) -> None:
        """Raise a ValueError for a setting that cannot be read, and for starts that changed the base."""
        super().refuse_settings(config)
        start = config.get("init_lora_weights", True)
        if start not in (True, False, "gaussian", "eva", "orthogonal"):
            raise ValueError(f"the adapter has init_lora_weights={start!r}, which changed weights of the base as well")

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
# The kind of adapter in peft that a method of this library becomes; peft has none for POET.
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


def _get_common(what: str, values: Mapping[str, int]) -> int:
    """Return the value that all layers share, or raise a ValueError: peft has one for all layers."""
    if len(set(values.values())) > 1:
        listed = ", ".join(f"{name!r} {value}" for name, value in list(values.items())[:4])
        raise ValueError(f"peft has one {what} for all layers, and here they differ: {listed}")
    return next(iter(values.values()))


def _refuse_factors(factors: int) -> None:
    if factors > 2:
        raise ValueError(
            f"the adapter has {factors} butterfly factors: from the third on, peft joins the half blocks that its second "
            "factor joins, so its product is not the butterfly"
        )


def _refuse_lengths(adapter: Adapter) -> None:
    if _get_change(adapter).lengths is not None:
        raise ValueError(f"peft has no learned lengths for {adapter.method.name!r}: use BOFT, or lengths=False")


def _count_rows(entries: int) -> int:
    """Return b of b(b − 1)/2 entries above a diagonal."""
    rows = (1 + math.isqrt(1 + 8 * entries)) // 2
    if rows * (rows - 1) // 2 != entries:
        raise ValueError(f"oft_R.weight has {entries} entries in a row, which is no b(b − 1)/2")
    return rows


def _copy(target: Tensor, value: Tensor) -> None:
    if target.shape != value.shape:
        raise ValueError(
            f"a tensor of the adapter has shape {tuple(value.shape)}, the layer needs {tuple(target.shape)}"
        )
    with torch.no_grad():
        target.copy_(value)
