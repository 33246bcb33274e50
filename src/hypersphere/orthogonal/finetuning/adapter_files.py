"""Files of learned changes without the base model. A fingerprint identifies the base when they are loaded."""

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
    """Write the learned changes of the active task and all other trained parameters to a safetensors file, without the base.

    The file also contains the method of every layer and a fingerprint of its frozen weight, so :func:`load_adapters` needs
    only the base model and the file.

    Args:
        model: A model tuned by :func:`finetune`.
        path: The file, which is replaced atomically.

    Raises:
        ValueError: If the model has no adapters, or if POET was redrawn, because its W₀ then differs from the base. Merge
            and save the model in this case.

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
            raise ValueError(
                f"layer {name!r} was redrawn, so R is only a part of what it learned: merge and save the model"
            )
        layers[name] = {
            "method": adapter.method.options(),
            "fingerprint": compute_fingerprint(model, name),
            "turns": dict(adapter.change.state_dict()),
        }
    save_tree({"format": FORMAT, "layers": layers, "others": list_trained(model)}, path)


def load_adapters(
    model: nn.Module, path: str | os.PathLike[str], *, task: str = "default", check: bool = True
) -> nn.Module:
    """Load the changes in a file into their base model, or into a tuned model as another task.

    A plain model is tuned as by :func:`finetune` with the methods in the file. A tuned model must have the same tuned
    layers, and ``task`` must be a new name; the active task does not change. Other trained parameters, such as those of a
    classifier, are copied into the model.

    Args:
        model: The model, changed in place.
        path: A file written by :func:`save_adapters`.
        task: The name of the task of the loaded changes.
        check: Whether every frozen weight must equal the one in training bit for bit. Pass False for a base in another
            precision.

    Returns:
        The model.

    Raises:
        ValueError: If the file is of another kind, if layers or shapes differ, or if the base differs.

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
                "load that base, or pass check=False if the difference is intended"
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
            raise ValueError(f"layer {name!r} has a task {task!r} already: pass another task name for {path}")
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
    """Return the adapters of a tuned model by weight name; raise a ValueError if there are none."""
    adapters = {
        name: site.parametrization
        for name, site in require_rotated(model).items()
        if isinstance(site.parametrization, Adapter)
    }
    if not adapters:
        raise ValueError(f"{type(model).__name__} has no finetuned layer: call finetune(model) first")
    return adapters


def compute_fingerprint(model: nn.Module, name: str, path: object = "the file") -> str:
    """Return the SHA-256 hash of the frozen weight with this name, in a tuned or a plain model."""
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
    """Tune each layer by its method, and make the parameters named in ``train`` trainable."""
    plan = TuningPlan()
    for name, method in methods.items():
        layer = select_weights(model, method, [name], (), False, ())
        plan.weights[name] = layer.weights[name]
        plan.report.changed[name] = layer.report.changed[name]
        plan.report.skipped |= layer.report.skipped
    plan.report.skipped = {name: reason for name, reason in plan.report.skipped.items() if name not in methods}
    apply_plan(model, plan, methods, ())
    for name in train:
        model.get_parameter(name).requires_grad_(True)


def list_trained(model: nn.Module) -> dict[str, Tensor]:
    """Return the trainable parameters except those of the learned changes."""
    rotations = {id(p) for adapter in get_adapters(model).values() for p in adapter.parameters()}
    return {name: p.detach() for name, p in model.named_parameters() if p.requires_grad and id(p) not in rotations}


def _check_tensors(model: nn.Module, others: dict[str, Tensor], path: object) -> dict[str, Tensor]:
    parameters = dict(model.named_parameters())
    for name, value in others.items():
        if name not in parameters or parameters[name].shape != value.shape:
            shape = tuple(parameters[name].shape) if name in parameters else "no parameter of that name"
            raise ValueError(f"{path} has {name!r} of shape {tuple(value.shape)}, {type(model).__name__} has {shape}")
    return others


def _format_names(names: set[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:4]) + (f" and {len(ordered) - 4} more" if len(ordered) > 4 else "")
