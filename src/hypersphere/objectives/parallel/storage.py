"""The weight of a head as a DTensor: one logical tensor in checkpoints, a range of classes on each process."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from ...collectives import get_first_row, get_local, is_sharded
from .shards import Shards

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

Over = DeviceMesh | dist.ProcessGroup | None
"""Processes: a mesh of one dimension, a process group, or None for all processes."""


def create_shards(over: Over, num_classes: int, device: torch.device, average: bool) -> Shards:
    """Create the shards of a head on these processes.

    Raises:
        ValueError: If torch.distributed is not initialized, or the mesh has several dimensions or another device type.

    On the second of three processes:

    >>> shards = create_shards(None, 7, torch.device("cpu"), average=True)  # doctest: +SKIP
    >>> shards.get_bounds()  # doctest: +SKIP
    Bounds(first=3, size=3)
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise ValueError(
            "torch.distributed is not running, so there are no processes to divide the head among: start the script with "
            "torchrun and call torch.distributed.init_process_group() first"
        )
    group = dist.group.WORLD if over is None else over
    assert group is not None
    device_type = device.type if device.type != "meta" else choose_device(group)
    mesh = group if isinstance(group, DeviceMesh) else DeviceMesh.from_group(group, device_type)
    if mesh.ndim != 1:
        raise ValueError(
            f"the mesh of a head must have one dimension, got {mesh.ndim}; select one of them, "
            f'as in mesh["{(mesh.mesh_dim_names or ("name",))[0]}"]'
        )
    if mesh.device_type != device_type:
        raise ValueError(f"the head is on {device_type} and the mesh on {mesh.device_type}: move the head first")
    return Shards(mesh, num_classes, average)


def choose_device(group: DeviceMesh | dist.ProcessGroup) -> str:
    """Choose the device type for a head on the meta device.

    It is the device type of the mesh, or torch's default device if the group's backend supports it (NCCL does not support
    the CPU), or else the first device type that the backend supports.

    >>> choose_device(torch.distributed.group.WORLD)  # after init_process_group("nccl")  # doctest: +SKIP
    'cuda'
    """
    if isinstance(group, DeviceMesh):
        return group.device_type
    supported = [part.partition(":")[0] for part in dist.get_backend_config(group).split(",")]
    default = torch.get_default_device().type
    return default if default in supported else supported[0]


@torch.no_grad()
def shard_rows(whole: Float[Tensor, "rows ..."], shards: Shards) -> "DTensor":
    """Divide a tensor that all processes hold, with an equal number of rows per class, into shards (classes, …).

    Row c·K + k of a weight with K sub-centers becomes entry (c, k) of a tensor of three dimensions, so that each class
    stays on one process. Nothing is communicated. On two processes, for five classes with two sub-centers each:

    >>> shards = create_shards(None, 5, torch.device("cpu"), average=True)  # doctest: +SKIP
    >>> weight = shard_rows(torch.ones(10, 3), shards)  # doctest: +SKIP
    >>> weight.shape, weight.to_local().shape  # on the second process  # doctest: +SKIP
    (torch.Size([5, 2, 3]), torch.Size([2, 2, 3]))
    """
    per_class = len(whole) // shards.num_classes
    by_class = whole.unflatten(0, (shards.num_classes, per_class)) if per_class > 1 else whole
    first, size = shards.get_bounds()
    local = by_class[first : first + size]
    local = torch.empty_like(local, device=shards.mesh.device_type) if whole.is_meta else local.clone()
    return wrap_shard(local, by_class.shape, shards.mesh)


def wrap_shard(local: Tensor, shape: torch.Size, mesh: DeviceMesh) -> "DTensor":
    """Wrap ``local``, this process's part of the first dimension, as a DTensor of shape ``shape``.

    Nothing is communicated. On two processes that hold four rows each:

    >>> mesh = torch.distributed.init_device_mesh("cpu", (2,))  # doctest: +SKIP
    >>> wrap_shard(torch.ones(4, 3), torch.Size([8, 3]), mesh).shape  # doctest: +SKIP
    torch.Size([8, 3])
    """
    from torch.distributed.tensor import DTensor, Shard

    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=shape, stride=stride)


@torch.no_grad()
def convert_stored(stored: Tensor, own: Tensor) -> Tensor:
    """Convert a stored tensor to the layout of ``own``, whole or in shards, regardless of how many processes stored it.

    Three classes with two sub-centers each have the shape (3, 2, d) in shards and (6, d) on one process:

    >>> convert_stored(torch.ones(3, 2, 4), torch.zeros(6, 4)).shape
    torch.Size([6, 4])
    """
    if is_sharded(stored):
        if is_sharded(own) and stored.shape == own.shape and stored.device_mesh == own.device_mesh:
            return stored
        stored = stored.full_tensor()
    if stored.numel() != own.numel():
        return stored
    stored = stored.reshape(own.shape)
    if not is_sharded(own):
        return stored
    local = get_local(own)
    first = get_first_row(own)
    part = stored[first : first + len(local)].to(local.device, local.dtype).clone()
    return wrap_shard(part, own.shape, own.device_mesh)


def fit_state(optimizer: Optimizer) -> None:
    """Convert the optimizer's tensors to the layout of their parameters, whole or in shards.

    Call it after ``load_state_dict`` to continue from a state that was stored on another number of processes or by
    :func:`gather_tree`.

    >>> w = torch.nn.Parameter(torch.zeros(6, 4))
    >>> optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    >>> optimizer.state[w]["momentum_buffer"] = torch.ones(3, 2, 4)  # layout in shards: classes, sub-centers, d
    >>> fit_state(optimizer)
    >>> optimizer.state[w]["momentum_buffer"].shape
    torch.Size([6, 4])
    """
    per_row = getattr(optimizer, "per_row", ())
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if name in per_row and parameter.ndim > 1:
                state[name] = _fit_row_state(value, parameter)
            elif isinstance(value, Tensor) and _has_shape_of(value, parameter):
                state[name] = convert_stored(value, parameter)


def gather_tree(tree: Any) -> Any:
    """Gather every DTensor in nested dicts, lists and tuples. All processes must call it, and all get the whole result.

    >>> gather_tree({"w": torch.ones(2), "steps": [3]})
    {'w': tensor([1., 1.]), 'steps': [3]}
    """
    if is_sharded(tree):
        return tree.full_tensor()
    if isinstance(tree, Mapping):
        return {key: gather_tree(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(gather_tree(value) for value in tree)
    return tree


def gather_state_dict(module: nn.Module) -> dict[str, Tensor]:
    """Return the state_dict of a module with whole instead of sharded heads, for safetensors. All processes must call it.

    >>> net = torch.nn.Sequential(torch.nn.Linear(6, 4, bias=False), hs.ArcFace(4, 10))
    >>> {name: tuple(tensor.shape) for name, tensor in gather_state_dict(net).items()}
    {'0.weight': (4, 6), '1.weight': (10, 4)}
    """
    state = cast("dict[str, Tensor]", gather_tree(module.state_dict()))
    for name, head in module.named_modules():
        if getattr(head, "shards", None) is not None:
            key = f"{name}.weight" if name else "weight"
            state[key] = state[key].flatten(0, -2).contiguous()
    return state


def find_sharded_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the sharded parameters of heads in a module, by name. Wrappers must not average their gradients.

    >>> head = hs.ArcFace(4, 10)
    >>> find_sharded_parameters(head)
    {}
    >>> list(find_sharded_parameters(head.shard()))  # on several processes  # doctest: +SKIP
    ['weight']
    """
    names = [name for name, p in module.named_parameters() if is_sharded(p) and _belongs_to_head(module, name)]
    return {name: module.get_parameter(name) for name in names}


def ignore_shards(module: nn.Module) -> nn.Module:
    """Exclude the shards of a module from ``DistributedDataParallel`` and return the module. Call it before wrapping.

    >>> net = torch.nn.ModuleDict({"body": torch.nn.Linear(6, 4), "head": hs.ArcFace(4, 10)})
    >>> _ = net["head"].shard()  # on several processes  # doctest: +SKIP
    >>> ignore_shards(net) is net
    True
    >>> net = torch.nn.parallel.DistributedDataParallel(net)  # doctest: +SKIP
    """
    # The wrapper puts a dot before the parameter names of the module that it wraps.
    names = [variant for name in find_sharded_parameters(module) for variant in (name, f".{name}")]
    torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)
    return module


def _belongs_to_head(module: nn.Module, name: str) -> bool:
    return getattr(module.get_submodule(name.rpartition(".")[0]), "shards", None) is not None


def _has_shape_of(value: Tensor, parameter: Tensor) -> bool:
    """Return whether a state tensor has the shape of the parameter, whole or in shards."""
    if value.ndim == 0 or value.numel() != parameter.numel():
        return False
    return value.shape == parameter.shape or (
        min(value.ndim, parameter.ndim) > 1 and value.shape[-1] == parameter.shape[-1]
    )


@torch.no_grad()
def _fit_row_state(value: Tensor, parameter: Tensor) -> Tensor:
    """Convert one number per row to one per class, or back. The rows of a class share their number."""
    value = value.full_tensor() if is_sharded(value) else value
    rows = len(parameter)
    if rows % len(value) and len(value) % rows:
        return value
    value = value.repeat_interleave(rows // len(value)) if len(value) < rows else value[:: len(value) // rows]
    if not is_sharded(parameter):
        return value.contiguous()
    first, size = get_first_row(parameter), len(get_local(parameter))
    part = value[first : first + size].to(get_local(parameter).device).clone()
    return wrap_shard(part, value.shape, parameter.device_mesh)
