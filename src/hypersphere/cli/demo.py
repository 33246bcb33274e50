"""``hypersphere demo``: what the geometry is for, shown on one pair of vectors."""

import argparse

import torch

from ..geometry import angle


def configure(parser: argparse.ArgumentParser) -> None:
    """No options."""


def run(args: argparse.Namespace) -> int:
    """Print the angle of nearly parallel float32 vectors by arccos and by this library, beside the true one."""
    print(f"{'true angle':>12} {'arccos':>12} {'hypersphere':>12}")
    for exponent in range(-7, 0):
        true = 10.0**exponent
        x = torch.tensor([1.0, 0.0])
        w = torch.tensor([1.0, true], dtype=torch.float64).atan_().tan_().to(torch.float32)
        cos = torch.nn.functional.cosine_similarity(x, w, dim=0)
        print(f"{true:12.3e} {cos.acos().item():12.3e} {angle(x, w).item():12.3e}")
    return 0
