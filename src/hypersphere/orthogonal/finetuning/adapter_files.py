"""Learned changes alone in a file: saved without the base, loaded onto a fresh one whose fingerprint is checked."""

import os
from typing import Any

import torch
from torch import Tensor, nn

from ...files import checksum, load_tree, save_tree
from ..parametrization import find_rotated, get_fixed_weight, require_rotated
from .adapter import Adapter
from .finetune import apply_plan
from .quantized_linear import get_quantized_weight, is_quantized
from .tuning_method import TuningMethod
from .tuning_plan import TuningPlan, select_weights

FORMAT = "hypersphere-adapter/1"


def save_adapters(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write the learned changes of the task in use, and whatever else is trained, as one safetensors file without the base.

    The file also holds the method of every layer and a fingerprint of its frozen weight, so :func:`load_adapters` needs
    the base model and the file only.

    Args:
        model: a model tuned by :func:`finetune`.
        path: the file, which is replaced as a whole or not at all.

    Raises:
        ValueError: for a model without adapters, and for POET after a redraw, whose W₀ is no longer that of the base:
            merge and save the model then.

    >>> import os, tempfile
    >>> net = hs.orthogonal.finetune(torch.nn.Linear(64, 64), block=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_adapters(net, os.path.join(folder, "task.safetensors"))
    ...     os.listdir(folder)
    ['task.safetensors']
    """
    layers = {}
    for name, adapter in get_adapters(model).items():
        if adapter.change.redrawable and int(adapter.redraws):
            raise ValueError(f"layer {name!r} was redrawn, so R alone is not what it learned: merge and save the model")
        layers[name] = {
            "method": adapter.method.options(),
            "fingerprint": compute_fingerprint(model, name),
            "turns": dict(adapter.change.state_dict()),
        }
    save_tree({"format": FORMAT, "layers": layers, "others": list_trained(model)}, path)


def load_adapters(
    model: nn.Module, path: str | os.PathLike[str], *, task: str = "default", check: bool = True
) -> nn.Module:
    """Put the changes in a file on their base, or beside those of a tuned model under the name of another task.

    On a plain model this is :func:`finetune` with the methods of the file. On a tuned one the layers must be the same
    and ``task`` a new name; the others stay in use until :func:`use_task`. What else was trained, such as a classifier,
    is copied into the model.

    Args:
        model: the model, changed in place.
        path: a file written by :func:`save_adapters`.
        task: the name that the changes get.
        check: whether every frozen weight must be the one that the changes were learned on, bit for bit. A base in
            another precision needs False.

    Returns:
        The model.

    Raises:
        ValueError: for another kind of file, other layers or shapes, and another base.

    >>> import copy, tempfile
    >>> base, x = torch.nn.Linear(64, 64), torch.randn(2, 64)
    >>> tuned = hs.orthogonal.finetune(copy.deepcopy(base), block=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_adapters(tuned, f"{folder}/task.safetensors")
    ...     loaded = load_adapters(base, f"{folder}/task.safetensors")
    >>> torch.equal(loaded(x), tuned(x))
    True
    """
    tree = load_tree(path)
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise ValueError(f"{path} holds no adapters: save_adapters(model, path) writes such a file")
    layers: dict[str, Any] = tree["layers"]
    tuned_names = {name for name, site in find_rotated(model).items() if isinstance(site.parametrization, Adapter)}
    if tuned_names and tuned_names != set(layers):
        raise ValueError(
            f"{path} tunes {_format_names(set(layers))}, the model {_format_names(tuned_names)}: merge(model) first"
        )
    if not task.isidentifier():
        raise ValueError(f"task must be a name of letters, digits and underscores, got {task!r}")
    others = _check_tensors(model, tree["others"], path)
    if check:
        differing = [name for name in layers if compute_fingerprint(model, name, path) != layers[name]["fingerprint"]]
        if differing:
            raise ValueError(
                f"{path} was learned on another base: {_format_names(set(differing))} differ; "
                "load that base, or say check=False if the difference is meant"
            )
    methods = {name: TuningMethod(**layer["method"]) for name, layer in layers.items()}
    if not tuned_names:
        tune_layers(model, methods, list(others))
    for name, adapter in get_adapters(model).items():
        if adapter.method != methods[name]:
            raise ValueError(f"layer {name!r} is tuned by {adapter.method}, {path} by {methods[name]}")
        if task not in adapter.tasks:
            adapter.add_like(task, "identity", None)
        elif tuned_names:
            raise ValueError(f"layer {name!r} has a task {task!r} already: choose another name for that of {path}")
        if not tuned_names:
            adapter.active = task
            for other in [other for other in adapter.tasks if other != task]:
                del adapter.tasks[other]
        adapter.tasks[task].load_state_dict(layers[name]["turns"])
    with torch.no_grad():
        for name, value in others.items():
            model.get_parameter(name).copy_(value)
    return model


def get_adapters(model: nn.Module) -> dict[str, Adapter]:
    """Return the adapters of a tuned model by the names of their weights, or raise a ValueError if there are none."""
    adapters = {
        name: site.parametrization
        for name, site in require_rotated(model).items()
        if isinstance(site.parametrization, Adapter)
    }
    if not adapters:
        raise ValueError(f"{type(model).__name__} has no finetuned layer: call finetune(model) first")
    return adapters


def compute_fingerprint(model: nn.Module, name: str, path: object = "the file") -> str:
    """Return the SHA-256 of the frozen weight of this name, also of a plain model."""
    site = find_rotated(model).get(name)
    if site is not None and not is_quantized(site.module):
        return checksum(name, {"weight": get_fixed_weight(site.module, site.parameter)})
    modules = dict(model.named_modules())
    module = modules.get(name, modules.get(name.rpartition(".")[0]))
    if module is not None and is_quantized(module):
        return checksum(name, get_quantized_weight(module))
    weight = getattr(module, "weight" if name in modules else name.rpartition(".")[2], None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"{path} tunes {name!r}, which {type(model).__name__} does not have")
    return checksum(name, {"weight": weight})


def tune_layers(model: nn.Module, methods: dict[str, TuningMethod], train: list[str]) -> None:
    """Tune layers by their methods, and let the parameters named in ``train`` be trained as usual."""
    plan = TuningPlan()
    for name, method in methods.items():
        layer = select_weights(model, method, [name], (), False, ())
        plan.weights[name] = layer.weights[name]
        plan.report.changed[name] = layer.report.changed[name]
        plan.report.skipped |= layer.report.skipped
    plan.report.skipped = {name: why for name, why in plan.report.skipped.items() if name not in methods}
    apply_plan(model, plan, methods, ())
    for name in train:
        model.get_parameter(name).requires_grad_(True)


def list_trained(model: nn.Module) -> dict[str, Tensor]:
    """Return what is trained beside the learned changes."""
    rotations = {id(p) for adapter in get_adapters(model).values() for p in adapter.parameters()}
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad and id(p) not in rotations}


def _check_tensors(model: nn.Module, others: dict[str, Tensor], path: object) -> dict[str, Tensor]:
    parameters = dict(model.named_parameters())
    for name, value in others.items():
        if name not in parameters or parameters[name].shape != value.shape:
            has = tuple(parameters[name].shape) if name in parameters else "nothing of that name"
            raise ValueError(f"{path} holds {name!r} of shape {tuple(value.shape)}, {type(model).__name__} has {has}")
    return others


def _format_names(names: set[str]) -> str:
    first = sorted(names)
    return ", ".join(first[:4]) + (f" and {len(first) - 4} more" if len(first) > 4 else "")
