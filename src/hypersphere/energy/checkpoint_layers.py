"""The layers of neurons in a checkpoint, and their kinds: projections of attention, tables, filters."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from .checkpoint_files import Checkpoint, as_dense

_STATE = re.compile(
    r"(^|\.)(optimizer|optim|opt_state|exp_avg|exp_avg_sq|momentum_buffer|scheduler|ema_optimizer)(\.|$)"
)
_FUSED = re.compile(
    r"(^|\.)(in_proj_weight|qkv\.weight|qkv_proj\.weight|query_key_value\.weight|c_attn\.weight|Wqkv\.weight)$"
)
_TRANSPOSED = re.compile(r"(^|\.)(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj|crossattention\.\w+)\.weight$")
_TABLE = re.compile(r"(embed|wte|wpe|relative_attention_bias)", re.IGNORECASE)
_OUTPUT = re.compile(r"(^|\.)(lm_head|classifier|score|output_projection|head|fc|decoder)\.weight$")
_PROJECTIONS = {
    "query": re.compile(r"(^|\.)(q_proj|query|q_lin|to_q|wq|q|q_proj_weight)(\.weight)?$"),
    "key": re.compile(r"(^|\.)(k_proj|key|k_lin|to_k|wk|k|k_proj_weight)(\.weight)?$"),
    "value": re.compile(r"(^|\.)(v_proj|value|v_lin|to_v|wv|v|v_proj_weight)(\.weight)?$"),
}


class Layer(NamedTuple):
    """The name of a layer, its kind in words, and its neurons as rows."""

    name: str
    kind: str
    rows: Float[Tensor, "neurons dim"]


def checkpoint_layers(
    state: Mapping[str, Any] | Checkpoint, only: str | None = None
) -> Iterator[Layer | tuple[str, str]]:
    """Yield the layers of a state_dict one at a time, and ``(name, reason)`` for every matrix that is not a layer.

    A fused projection of attention (``in_proj_weight``, ``qkv``, ``c_attn``) gives three layers: query, key and value.
    Weights of Conv1D in GPT-2 are stored as (inputs, neurons) and are transposed. The kind of a table says whether the
    output uses the same weight. States of optimizers are not layers. ``only`` is the name of a single tensor to read.

    >>> layers = list(checkpoint_layers({"attn.in_proj_weight": torch.randn(12, 4), "fc.weight": torch.randn(3, 4)}))
    >>> [(layer.name, layer.kind, len(layer.rows)) for layer in layers[:2]]
    [('attn.in_proj_weight[query]', 'attention query', 4), ('attn.in_proj_weight[key]', 'attention key', 4)]
    """
    config = state.config if isinstance(state, Checkpoint) else {}
    names = list(state.where) if isinstance(state, Checkpoint) else list(state)
    is_gpt2 = config.get("model_type") in ("gpt2", "openai-gpt") or _looks_like_gpt2(names)
    heads = next((config[key] for key in ("num_attention_heads", "n_head", "num_heads") if key in config), None)
    shared = _find_tied(state, names, config)
    for name in names if only is None else [only]:
        value, reason = as_dense(state[name])
        if value is None:
            if reason and reason != "not a tensor":
                yield name, reason
            continue
        if _STATE.search(name):
            yield name, "state of an optimizer"
            continue
        rows = value.flatten(1)
        if is_gpt2 and _TRANSPOSED.search(name):
            rows = rows.T
        if min(rows.shape) < 2:
            continue
        yield from _name_layers(name, rows, heads if isinstance(heads, int) else None, shared)


def _name_layers(name: str, rows: Tensor, heads: int | None, shared: set[str]) -> Iterator[Layer]:
    if _FUSED.search(name) and len(rows) % 3 == 0 and len(rows) // 3 >= 2:
        for part, third in zip(("query", "key", "value"), rows.chunk(3), strict=True):
            yield Layer(f"{name}[{part}]", _describe_attention(part, heads), third)
        return
    for part, pattern in _PROJECTIONS.items():
        if pattern.search(name):
            yield Layer(name, _describe_attention(part, heads), rows)
            return
    if name in shared:
        kind = "table, tied to the output"
    elif _TABLE.search(name):
        kind = "table"
    else:
        kind = "output" if _OUTPUT.search(name) else ""
    yield Layer(name, kind, rows)


def _describe_attention(part: str, heads: int | None) -> str:
    return f"attention {part}" + (f", {heads} heads" if heads else "")


def _looks_like_gpt2(names: list[str]) -> bool:
    return any(name.endswith("attn.c_attn.weight") for name in names)


def _find_tied(state: Mapping[str, Any] | Checkpoint, names: list[str], config: Mapping[str, Any]) -> set[str]:
    """Return the tables that are tied to the output, according to the configuration or to shared memory."""
    tables = [
        name for name in names if _TABLE.search(name) and "position" not in name and not name.endswith("wpe.weight")
    ]
    outputs = [name for name in names if _OUTPUT.search(name)]
    if isinstance(state, Checkpoint):
        return set(tables[:1]) if config.get("tie_word_embeddings") and not outputs else set()
    address = {name: state[name].data_ptr() for name in (*tables, *outputs) if isinstance(state[name], Tensor)}
    return {t for t in tables if any(address.get(t) == address.get(o) for o in outputs)}
