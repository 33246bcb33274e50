"""Synthetic data for tests without downloads: a graph with communities, and point clouds of solids."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from .graphs import Nodes
from .in_memory import InMemory
from .streams import SYNTHETIC, Stream


class PlantedGraph(Nodes):
    """A planted partition with the attributes of :class:`~hypersphere.data.Planetoid`: nodes, features, classes, edges, splits.

    There is an edge between two nodes of one class with probability ``within``, and between nodes of two classes with probability
    ``between``. Features are words: words of the node's class occur with probability 0.3, other words with probability 0.1. A sixth of
    the nodes is for training, a sixth for validation, and the rest for testing.

    >>> graph = PlantedGraph(nodes=60)
    >>> graph.data.shape, len(graph.classes), len(graph.train), len(graph.test)
    (torch.Size([60, 32]), 4, 10, 40)
    """

    def __init__(
        self,
        nodes: int = 240,
        classes: int = 4,
        features: int = 32,
        within: float = 0.1,
        between: float = 0.01,
        seed: int = 0,
    ):
        if min(classes, features) < 2 or nodes < 6 * classes or not 0 <= between <= within <= 1:
            raise ValueError(
                "classes and features must be ≥ 2, nodes ≥ 6·classes, 0 ≤ between ≤ within ≤ 1, "
                f"got {classes}, {features}, {nodes}, {between}, {within}"
            )
        self.classes = tuple(str(c) for c in range(classes))
        self.labels = torch.arange(nodes) % classes
        first, second = torch.triu_indices(nodes, nodes, 1)
        edge_probability = torch.where(self.labels[first] == self.labels[second], within, between)
        is_edge = Stream(seed, SYNTHETIC, 0).uniforms(len(first)) < edge_probability
        self.edges = torch.stack([first[is_edge], second[is_edge]], 1)
        word_probability = torch.where(self.labels[:, None] == torch.arange(features) % classes, 0.3, 0.1)
        uniforms = Stream(seed, SYNTHETIC, 1).uniforms(nodes * features).view_as(word_probability)
        self.data = (uniforms < word_probability).float()
        order = Stream(seed, SYNTHETIC, 2).permutation(nodes)
        part = nodes // 6
        self.train, self.valid, self.test = (rows.sort().values for rows in order.split([part, part, nodes - 2 * part]))


class Shapes(InMemory):
    """Point clouds of four solids (ball, box, cylinder, cone), float32 (n, points, 3), centered and scaled into the unit ball.

    Each cloud is scaled by random factors between 0.7 and 1.3 along the axes and rotated about the vertical axis. The training part has
    ``count`` clouds per solid, and the test part (``train=False``) a quarter as many.

    >>> shapes = Shapes(count=8, points=64)
    >>> shapes.data.shape, shapes.classes
    (torch.Size([32, 64, 3]), ('ball', 'box', 'cylinder', 'cone'))
    """

    def __init__(self, train: bool = True, points: int = 128, count: int = 64, seed: int = 0):
        if points < 1 or count < 4:
            raise ValueError(f"points must be ≥ 1 and count ≥ 4, got {points} and {count}")
        each = count if train else count // 4
        clouds = [
            _sample_cloud(surface, Stream(seed, SYNTHETIC, 3 + train, kind, i), points)
            for kind, surface in enumerate(SURFACES.values())
            for i in range(each)
        ]
        super().__init__(
            torch.stack(clouds).float(), torch.arange(len(SURFACES)).repeat_interleave(each), tuple(SURFACES)
        )


def _sample_cloud(surface: Callable[[Tensor], Tensor], stream: Stream, points: int) -> Float[Tensor, "points 3"]:
    cloud = surface(stream.uniforms(3 * points).reshape(points, 3).T)
    *stretch, turn = stream.uniforms(4).tolist()
    cosine, sine = math.cos(2 * math.pi * turn), math.sin(2 * math.pi * turn)
    rotation = cloud.new_tensor([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]])
    cloud = (cloud * (0.7 + 0.6 * cloud.new_tensor(stretch))) @ rotation.T
    cloud = cloud - cloud.mean(0)
    return cloud / cloud.norm(dim=1).max().clamp(min=1e-6)


# Each function maps three uniform numbers per point, (3, points), to points distributed uniformly on the surface, (points, 3).
def _map_to_ball(u: Tensor) -> Tensor:
    height = 2 * u[0] - 1
    return _place_on_rings((1 - height**2).sqrt(), u[1], height)


def _map_to_box(u: Tensor) -> Tensor:
    face = (6 * u[0]).long()
    a, b, side = 2 * u[1] - 1, 2 * u[2] - 1, (2 * (face % 2) - 1).double()
    return torch.stack([torch.stack([side, a, b]), torch.stack([a, side, b]), torch.stack([a, b, side])])[
        face // 2, :, torch.arange(len(a))
    ]


def _map_to_cylinder(u: Tensor) -> Tensor:
    mantle = u[0] < 2 / 3  # areas 4π of 6π with radius 1 and height 2
    radius = torch.where(mantle, 1.0, u[2].sqrt())
    cap = torch.where(u[0] < 5 / 6, 1.0, -1.0)
    return _place_on_rings(radius, u[1], torch.where(mantle, 2 * u[2] - 1, cap))


def _map_to_cone(u: Tensor) -> Tensor:
    slant = math.sqrt(5.0)  # radius 1, height 2: areas π√5 and π
    radius = u[2].sqrt()
    return _place_on_rings(radius, u[1], torch.where(u[0] < slant / (slant + 1), 1 - 2 * radius, -1.0))


def _place_on_rings(radius: Tensor, turn: Tensor, height: Tensor) -> Tensor:
    angle = 2 * math.pi * turn
    return torch.stack([radius * angle.cos(), radius * angle.sin(), height], 1)


SURFACES: dict[str, Callable[[Tensor], Tensor]] = {
    "ball": _map_to_ball,
    "box": _map_to_box,
    "cylinder": _map_to_cylinder,
    "cone": _map_to_cone,
}
