"""Sharded heads must compute the same as the whole head on the samples of all processes."""

import copy
import warnings

import torch
from torch.distributed.tensor import DTensor

from hypersphere.objectives.parallel import gather_state_dict


def divided_batch(x, y, size):
    """Return the samples of each process: uneven numbers, and none on the last of three."""
    counts = {1: [len(x)], 2: [len(x) - 2, 2], 3: [2, len(x) - 2, 0]}[size]
    return list(zip(x.split(counts), y.split(counts), strict=True))


def on_shards(group, head, batches, options=None):
    """Return the results of the sharded head on this process, with all shards gathered."""
    head = copy.deepcopy(head)
    x, y = batches[torch.distributed.get_rank(group)]
    head.shard(group, **(options or {}))
    return results(head, x, y)


def results(head, x, y):
    """Return the loss, gradients, state, logits and best classes by name, from a fixed random state."""
    rank = 0 if head.shards is None else head.shards.rank
    torch.manual_seed(rank)  # random margins use the draws of the first process
    x = x.detach().clone().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = head(x, y)
        loss.sum().backward()
    found = {"loss": loss.detach(), "features": x.grad}
    for name, p in head.named_parameters():
        if p.grad is not None:
            gradient = p.grad.to_dense() if p.grad.layout == torch.sparse_coo else p.grad
            found[f"gradient of {name}"] = gathered(gradient, p)
    found |= gather_state_dict(head)
    found["logits"] = head.logits(x.detach()).detach()
    found["predicted"] = head.predict(x.detach())
    found["best"] = head.topk(x.detach(), min(3, head.num_classes)).classes
    return found


def gathered(gradient, parameter):
    if isinstance(gradient, DTensor):
        gradient = gradient.full_tensor()
    elif isinstance(parameter, DTensor):  # nonzero only in the rows that this process drew
        torch.distributed.all_reduce(gradient, group=parameter.device_mesh.get_group())
    return gradient.flatten(0, -2) if gradient.ndim == 3 else gradient


def agree(whole, parts, tolerance, average=True):
    """Assert that each process's results are those of the whole head."""
    size = len(parts)
    for name, expected in whole.items():
        if name in ("features", "logits", "predicted", "best") or expected.shape == whole["features"].shape[:1]:
            found = torch.cat([part[name] for part in parts])
            found = found / size if name == "features" and average else found
            check(name, found, expected, tolerance)
        else:
            for part in parts:
                check(name, part[name], expected, tolerance)


def check(name, found, expected, tolerance):
    assert found.shape == expected.shape, f"{name}: {found.shape} for {expected.shape}"
    if not found.numel():
        return
    reach = 1 + (expected.double().abs().max().item() if expected.is_floating_point() else 0)
    error = (found.double() - expected.double()).abs().max().item() / reach
    assert error <= tolerance, f"{name} is off by {error:.2g} (relative to its largest entry)"
