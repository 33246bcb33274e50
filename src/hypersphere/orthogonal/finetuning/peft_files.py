"""Adapters in peft's file format: a folder with ``adapter_config.json`` and ``adapter_model.safetensors``."""

import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor, nn

from ...files import write_atomically
from .._merge import merge
from ..parametrization import find_rotated
from .adapter import Adapter
from .adapter_files import get_adapters, list_trained, tune_layers
from .peft_formats import FORMATS, WRITTEN_AS, PeftFormat

PREFIX = "base_model.model."
CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
MAX_CONFIG_BYTES = 2**20


def save_peft_adapter(model: nn.Module, folder: str | os.PathLike[str]) -> None:
    """Write the learned changes of the active task as an adapter that peft can load.

    OFT and COFT are written as OFT, LoRA, NoRA and DoRA as LoRA, and BOFT and HRA under their own names. Modules that were
    trained as usual, such as the classifier, are saved as ``modules_to_save``. Load the adapter with
    ``peft.PeftModel.from_pretrained(base, folder)``. Within this library use :func:`save_adapters`, which also identifies
    the base.

    Args:
        model: A model tuned by :func:`finetune`, with one method for all layers.
        folder: The folder, which is created if necessary.

    Raises:
        ValueError: If peft has no such adapter or computes something else: POET, several methods in one model, learned
            lengths with a method other than BOFT, more than two butterfly factors, different block sizes, OFT on kernels
            larger than 1, grouped convolutions, non-square kernels, and layers other than Linear and Conv2d.

    >>> import os, tempfile
    >>> net = hs.orthogonal.finetune(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 3)), block=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_peft_adapter(net, folder)
    ...     sorted(os.listdir(folder))
    ['adapter_config.json', 'adapter_model.safetensors']
    """
    adapters = get_adapters(model)
    methods = {adapter.method for adapter in adapters.values()}
    if len(methods) > 1:
        raise ValueError(f"peft has one method for all layers, but the model has {len(methods)}")
    name = next(iter(methods)).name
    if name not in WRITTEN_AS:
        raise ValueError(f"peft has no adapter for {name!r}: merge the model and save it as a whole")
    peft_format = FORMATS[WRITTEN_AS[name]]
    modules = dict(model.named_modules())
    tensors: dict[str, Tensor] = {}
    for layer, adapter in adapters.items():
        _refuse_layer(layer, modules, peft_format)
        for ending, value in peft_format.write(adapter, modules[layer]).items():
            tensors[f"{PREFIX}{layer}.{ending}"] = value.detach().contiguous().clone()
    trained = list_trained(model)
    saved = sorted({parameter.rpartition(".")[0] for parameter in trained})
    if not all(saved):
        raise ValueError("peft can only save parameters of submodules, but a parameter of the model itself is trained")
    for parameter, value in trained.items():
        tensors[PREFIX + parameter] = value.contiguous().clone()
    config = {
        "peft_type": WRITTEN_AS[name],
        "base_model_name_or_path": None,
        "task_type": None,
        "inference_mode": True,
        "bias": "none",
        "target_modules": "|".join(
            re.escape(layer) for layer in adapters
        ),  # a regular expression that peft matches with the whole name
        "modules_to_save": saved or None,
        **peft_format.configure(adapters),
    }
    target = pathlib.Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    write_atomically(target / TENSORS, lambda path: safetensors.torch.save_file(tensors, path, {"format": "pt"}))
    text = json.dumps(config, indent=2, sort_keys=True)
    write_atomically(target / CONFIG, lambda path: pathlib.Path(path).write_text(text, encoding="utf-8"))


def load_peft_adapter(model: nn.Module, folder: str | os.PathLike[str]) -> nn.Module:
    """Tune a plain model with an adapter saved by peft: OFT, BOFT, HRA, LoRA or DoRA.

    Only safetensors and JSON are read, so the files cannot run code. peft's files do not identify the base, so it is not
    checked. The model is then the same as one tuned by :func:`finetune`: continue the training, :func:`merge` or
    :func:`rewind` it. Dropout of the adapter is ignored.

    Args:
        model: The plain base model, changed in place.
        folder: The folder with ``adapter_config.json`` and ``adapter_model.safetensors``.

    Returns:
        The model.

    Raises:
        ValueError: If files are missing or damaged, if the kind of adapter, a setting or a layer is not supported, or if
            names or shapes do not match. The message gives the reason.

    >>> import tempfile
    >>> base, x = torch.nn.Linear(64, 64), torch.randn(2, 64)
    >>> weight = base.weight.detach().clone()
    >>> net = hs.orthogonal.finetune(torch.nn.Sequential(base), block=8, classifier=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_peft_adapter(net, folder)
    ...     plain = torch.nn.Sequential(torch.nn.Linear(64, 64))
    ...     loaded = load_peft_adapter(plain, folder)
    >>> loaded[0].parametrizations.weight[0]
    Adapter(...
    """
    source = pathlib.Path(folder)
    config, tensors = _read_config(source), _read_tensors(source)
    kind = config.get("peft_type")
    if kind not in FORMATS:
        raise ValueError(f"{source} has an adapter of the kind {kind!r}; supported are {', '.join(FORMATS)}")
    peft_format = FORMATS[kind]
    peft_format.refuse_settings(config)
    if any(isinstance(site.parametrization, Adapter) for site in find_rotated(model).values()):
        raise ValueError(f"{type(model).__name__} is tuned already: merge(model) first")
    layers, others = _sort_tensors(tensors, peft_format, model, source)
    modules = dict(model.named_modules())
    for layer in layers:
        _refuse_layer(layer, modules, peft_format)
    methods = {layer: peft_format.read_method(config, held) for layer, held in layers.items()}
    tune_layers(model, methods, list(others))
    try:
        for layer, adapter in get_adapters(model).items():
            peft_format.read(adapter, layers[layer], config)
    except ValueError:
        merge(model, undo=True)
        raise
    for name, value in others.items():
        model.get_parameter(name).data.copy_(value)
    return model


def _sort_tensors(
    tensors: Mapping[str, Tensor], peft_format: PeftFormat, model: nn.Module, source: pathlib.Path
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Tensor]]:
    """Return the tensors of tuned layers by layer and ending, and those of modules that were trained as usual."""
    layers: dict[str, dict[str, Tensor]] = {}
    others: dict[str, Tensor] = {}
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        name = key.removeprefix(PREFIX)
        ending = next((ending for ending in peft_format.names if name.endswith(f".{ending}")), None)
        if ending is not None and key.startswith(PREFIX):
            layers.setdefault(name.removesuffix(f".{ending}"), {})[ending] = value
        elif key.startswith(PREFIX) and name in parameters and parameters[name].shape == value.shape:
            others[name] = value
        else:
            raise ValueError(
                f"{source} has {key!r} of shape {tuple(value.shape)}, which matches no parameter of the model"
            )
    if not layers:
        raise ValueError(f"{source} has no tensors of layers")
    return layers, others


def _refuse_layer(layer: str, modules: Mapping[str, nn.Module], peft_format: PeftFormat) -> None:
    if layer not in modules:
        raise ValueError(f"the adapter changes {layer!r}, which is not a layer of the model that peft supports")
    parent = modules.get(layer.rpartition(".")[0])
    module = modules[layer]
    plain_class = next(kind for kind in type(module).__mro__ if not kind.__name__.startswith(("Parametrized", "Tuned")))
    reason = peft_format.explain_layer(module, plain_class)
    if isinstance(parent, nn.MultiheadAttention):
        reason = "an nn.MultiheadAttention uses the weight directly and would ignore peft's adapter around the layer"
    if reason is not None:
        raise ValueError(f"layer {layer!r}: {reason}")


def _read_config(source: pathlib.Path) -> dict[str, Any]:
    path = source / CONFIG
    if not path.is_file():
        raise ValueError(f"{source} has no {CONFIG}")
    if path.stat().st_size > MAX_CONFIG_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size} bytes; at most {MAX_CONFIG_BYTES} are accepted")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path} must contain a JSON object, got a {type(config).__name__}")
    return config


def _read_tensors(source: pathlib.Path) -> dict[str, Tensor]:
    path = source / TENSORS
    if not path.is_file():
        hint = "; a .bin file is a pickle and can run code: save the adapter again with safe_serialization=True"
        raise ValueError(f"{source} has no {TENSORS}{hint if (source / 'adapter_model.bin').exists() else ''}")
    try:
        return safetensors.torch.load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a complete safetensors file: {error}") from error
