"""Reader of the face networks that insightface (``arcface_torch``) writes as state dicts."""

import math
import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .iresnet import BLOCKS, WIDTHS, IResNet
from .mobilefacenet import BASE_WIDTH, MobileFaceNet

State: TypeAlias = Mapping[str, Tensor]
INSIGHTFACE_ARCHITECTURES = (*(f"iresnet{depth}" for depth in BLOCKS), "mobilefacenet")
REDUCTION = 16  # factor by which both networks reduce height and width

# Names of tensors in this library → names in insightface.
_BLOCK = {"norm": "bn1", "first.conv": "conv1", "first.norm": "bn2", "first.activation": "prelu"}
_BLOCK |= {
    "second.conv": "conv2",
    "second.norm": "bn3",
    "shortcut.conv": "downsample.0",
    "shortcut.norm": "downsample.1",
}
_IRESNET = {"stem.conv": "conv1", "stem.norm": "bn1", "stem.activation": "prelu", "norm": "bn2"}
_IRESNET |= {"embedding.linear": "fc", "embedding.norm": "features"}
_MOBILE = {"collect.conv": "features.layers.0.layers.0", "collect.norm": "features.layers.0.layers.1"}
_MOBILE |= {"embedding.linear": "features.layers.2", "embedding.norm": "features.layers.3"}
_NUMBERS = {"expand": "0", "filter": "1", "project": "2", "conv": "0", "norm": "1", "activation": "2"}


def read_insightface(path: str | os.PathLike[str], architecture: str | None = None) -> IResNet | MobileFaceNet:
    """Return the face network of a state dict that insightface wrote, such as ``backbone.pth`` of ``arcface_torch``.

    The architecture, the dimension of the features and the input size follow from the shapes of the tensors. A training
    checkpoint with the key ``state_dict_backbone`` is read as well. No code in the file is executed.

    Args:
        path: The file (``.pth`` or ``.pt``).
        architecture: The expected architecture: ``iresnet18``, ``iresnet34``, ``iresnet50``, ``iresnet100``,
            ``iresnet200`` or ``mobilefacenet``. By default it is recognized.

    Returns:
        The network in evaluation mode. It takes RGB faces aligned to 112×112 pixels, (x − 127.5)/127.5.

    Raises:
        ValueError: If the file is not a state dict, or its tensors do not fit the architecture.

    >>> read_insightface("backbone.pth").settings  # doctest: +SKIP
    {'depth': 50, 'input_size': 112, 'feature_dim': 512}
    """
    if architecture not in (None, *INSIGHTFACE_ARCHITECTURES):
        raise ValueError(f"architecture must be one of {', '.join(INSIGHTFACE_ARCHITECTURES)}, got {architecture!r}")
    state = _read_state(Path(path))
    try:
        found, network = _build_network(state)
    except (KeyError, ValueError) as error:
        missing = f"there is no {error.args[0]}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path} contains neither an iresnet nor a mobilefacenet of insightface: {missing}") from error
    if architecture not in (None, found):
        raise ValueError(f"architecture must be {found!r} for the tensors in {path}, got {architecture!r}")
    own = {name: value for name, value in network.state_dict().items() if not name.endswith("num_batches_tracked")}
    own_names = {_translate_name(name, found): name for name in own}
    problems = _list_problems({key: own[name] for key, name in own_names.items()}, state)
    if problems:
        raise ValueError(f"{path} does not fit {found}: {'; '.join(problems)}")
    network.load_state_dict({own_names[key]: value for key, value in state.items()}, strict=False)  # checked above
    return network.eval()


def _read_state(path: Path) -> State:
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        read: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        raise ValueError(
            f"{path} is not a state dict that can be read without executing code: save it with "
            "torch.save(backbone.state_dict(), FILE)"
        ) from error
    state = read.get("state_dict_backbone", read) if isinstance(read, dict) else read
    if not isinstance(state, Mapping) or not state or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path} must be a state dict, which maps names to tensors, got a {type(state).__name__}")
    return {
        key.removeprefix("module."): value.float() if value.is_floating_point() else value
        for key, value in state.items()
        if not key.endswith("num_batches_tracked")
    }


def _build_network(state: State) -> tuple[str, IResNet | MobileFaceNet]:
    """Return the name of the architecture and a network with random weights. Raise ``KeyError`` for a missing tensor."""
    if "conv_sep.layers.0.weight" in state:
        # A stage of one block has no numbered blocks, so it counts as 1.
        blocks = tuple(
            max(1, _count_blocks(state, rf"layers\.{stage}\.layers\.(\d+)\.layers")) for stage in (1, 3, 5, 7)
        )
        kernel = state["features.layers.0.layers.0.weight"].shape[-1]
        mobile = MobileFaceNet(
            blocks=blocks,
            scale=max(1, state["layers.0.layers.0.weight"].shape[0] // BASE_WIDTH),
            input_size=REDUCTION * kernel,
            feature_dim=state["features.layers.2.weight"].shape[0],
        )
        return "mobilefacenet", mobile
    counts = tuple(_count_blocks(state, rf"layer{stage}\.(\d+)\.") for stage in (1, 2, 3, 4))
    depth = next((depth for depth, known in BLOCKS.items() if known == counts), None)
    if depth is None:
        raise ValueError(f"no known depth has {', '.join(map(str, counts))} blocks in layer1 to layer4")
    feature_dim, inputs = state["fc.weight"].shape
    side = math.isqrt(inputs // WIDTHS[-1])
    return f"iresnet{depth}", IResNet(depth, input_size=REDUCTION * side, feature_dim=feature_dim)


def _count_blocks(state: State, pattern: str) -> int:
    """Return one more than the largest block number in the names that match; 0 if no name matches."""
    return 1 + max((int(match[1]) for key in state if (match := re.match(pattern, key))), default=-1)


def _translate_name(name: str, architecture: str) -> str:
    """Return the name in insightface of a tensor of this library's network."""
    layer, _, tensor = name.rpartition(".")
    known = _MOBILE if architecture == "mobilefacenet" else _IRESNET
    if layer in known:
        return f"{known[layer]}.{tensor}"
    part, *parts = layer.split(".")
    stage = int(parts.pop(0)) + 1 if part == "stages" else 0
    if architecture != "mobilefacenet":
        block, *inner = parts
        return f"layer{stage}.{block}.{_BLOCK['.'.join(inner)]}.{tensor}"
    start = "conv_sep" if part == "last" else f"layers.{stage}"
    return ".".join([start, *(f"layers.{_NUMBERS.get(part, part)}" for part in parts), tensor])


def _list_problems(expected: State, state: State) -> list[str]:
    """Describe missing tensors, unexpected tensors, and tensors of another shape."""
    problems = []
    missing = [key for key in expected if key not in state]
    if missing:
        problems.append(f"{_count_tensors(missing)} missing, such as {missing[0]}")
    unexpected = [key for key in state if key not in expected]
    if unexpected:
        problems.append(f"{_count_tensors(unexpected)} unexpected, such as {unexpected[0]}")
    wrong = [key for key in expected if key in state and expected[key].shape != state[key].shape]
    if wrong:
        shapes = f"{tuple(state[wrong[0]].shape)} instead of {tuple(expected[wrong[0]].shape)}"
        problems.append(f"{_count_tensors(wrong)} of another shape, such as {wrong[0]}: {shapes}")
    return problems


def _count_tensors(names: list[str]) -> str:
    return "1 tensor is" if len(names) == 1 else f"{len(names)} tensors are"
