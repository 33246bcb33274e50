"""PointNet++ for the classification of point clouds, with single-scale grouping (6.6.2, E.1; table 6.8)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from typing_extensions import Unpack

from .blocks import Layers, make_layers
from .network import ConvOptions, Network


class PointNet2(Network):
    """Three levels of set abstraction, then fully connected 512 and 256 (Qi et al. 2017, arXiv 1706.02413).

    A level chooses centers by :func:`sample_farthest` and groups the neighbors of each center within a radius. A small
    PointNet then sees the coordinates of each group, relative to the center, and the features from the level before. The
    first level has 512 centers with 32 neighbors within 0.2, the second 128 centers with 64 neighbors within 0.4, and the
    last one group of all points. Widths are those of the single-scale model in the authors' repository, which Liu (2020)
    uses because the repository has no multi-resolution model.

    Args:
        num_classes: 40 for ModelNet-40; None makes it a feature extractor.
        centers: Number of centers of the first two levels, limited to the number of points of the level before.
        dropout: Probability of dropout after each fully connected layer.
        **options: See :class:`~hypersphere.models.ConvOptions`; ``conv`` has the signature of ``nn.Conv1d``. The default
            initialization is Glorot's.

    Raises:
        ValueError: If there are no centers.

    >>> net = PointNet2(40, width=0.1, centers=(16, 4)).eval()
    >>> net(torch.randn(2, 3, 50)).shape, net.feature_dim
    (torch.Size([2, 40]), 26)
    """

    def __init__(
        self,
        num_classes: int | None = 40,
        *,
        centers: tuple[int, int] = (512, 128),
        dropout: float = 0.5,
        **options: Unpack[ConvOptions],
    ):
        super().__init__()
        if min(centers) < 1:
            raise ValueError(f"centers must be two integers ≥ 1, got {centers!r}")
        options.setdefault("conv", nn.Conv1d)
        options.setdefault("init", "xavier")
        layers = make_layers(**options, batch=nn.BatchNorm1d)
        self.level1 = SetAbstraction(layers, 0, (64, 64, 128), centers[0], 0.2, 32)
        self.level2 = SetAbstraction(layers, self.level1.filters, (128, 128, 256), centers[1], 0.4, 64)
        self.whole, channels = layers.convolutions(3 + self.level2.filters, (256, 512, 1024), 1)
        self.cloud, dim = layers.perceptron(channels, (512, 256))
        self.cloud[0].add_module("dropout", nn.Dropout(dropout))
        self.dropout = nn.Dropout(dropout)
        self._add_classifier(dim, num_classes, layers)

    def features(self, x: Float[Tensor, "batch 3 points"]) -> Float[Tensor, "batch dim"]:
        """Return the embedding of a batch of clouds."""
        points, below = self.level2(*self.level1(x, None))
        whole = self.whole(torch.cat([points, below], 1)).amax(-1)
        return self.dropout(self.cloud(whole))


class SetAbstraction(nn.Module):
    """A level of PointNet++: centers, the neighbors of each within a radius, and a small PointNet for every group.

    >>> level = SetAbstraction(make_layers(conv=torch.nn.Conv1d, norm=None), 0, (8, 16), centers=4, radius=0.5, neighbors=3)
    >>> points, features = level(torch.randn(2, 3, 10), None)
    >>> points.shape, features.shape
    (torch.Size([2, 3, 4]), torch.Size([2, 16, 4]))
    """

    def __init__(
        self, layers: Layers, channels: int, filters: tuple[int, ...], centers: int, radius: float, neighbors: int
    ):
        super().__init__()
        self.centers, self.radius, self.neighbors = centers, radius, neighbors
        self.points, self.filters = layers.convolutions(3 + channels, filters, 1)

    def forward(
        self, x: Float[Tensor, "batch 3 points"], below: Float[Tensor, "batch channels points"] | None
    ) -> tuple[Float[Tensor, "batch 3 centers"], Float[Tensor, "batch filters centers"]]:
        """Return the centers and the features of their groups."""
        rows = x.mT
        centers = take_points(rows, sample_farthest(rows, min(self.centers, rows.shape[1])))
        index = find_neighbors(centers, rows, self.radius, self.neighbors).flatten(1)
        group = take_points(rows, index).unflatten(1, (centers.shape[1], -1)) - centers[:, :, None]
        if below is not None:
            group = torch.cat([group, take_points(below.mT, index).unflatten(1, (centers.shape[1], -1))], -1)
        lifted = self.points(group.flatten(1, 2).mT).unflatten(2, (centers.shape[1], -1))
        return centers.mT, lifted.amax(-1)


@torch.no_grad()
def sample_farthest(points: Float[Tensor, "batch points 3"], count: int) -> Int[Tensor, "batch {count}"]:
    """Return indices of points, starting with point 0; each next one is the farthest from all chosen before.

    Args:
        points: Clouds of points.
        count: Number of points to choose, at most that of the cloud.

    >>> sample_farthest(torch.tensor([[[0.0, 0, 0], [1, 0, 0], [5, 0, 0], [2, 0, 0]]]), 3)
    tensor([[0, 2, 3]])
    """
    assert 1 <= count <= points.shape[1]
    chosen = torch.zeros(len(points), count, dtype=torch.long, device=points.device)
    nearest = points.new_full(points.shape[:2], float("inf"))
    for i in range(1, count):
        nearest = torch.minimum(nearest, (points - take_points(points, chosen[:, i - 1 : i])).square().sum(-1))
        chosen[:, i] = nearest.argmax(-1)
    return chosen


@torch.no_grad()
def find_neighbors(
    centers: Float[Tensor, "batch centers 3"], points: Float[Tensor, "batch points 3"], radius: float, count: int
) -> Int[Tensor, "batch centers _"]:
    """Return indices of the first ``count`` points within a radius of each center. A smaller group repeats its first point.

    Args:
        centers: Some of ``points``, so that no group is empty.
        points: Clouds of points.
        radius: Radius of the ball around each center.
        count: Size of a group.

    >>> points = torch.tensor([[[0.0, 0, 0], [9, 0, 0], [0.1, 0, 0]]])
    >>> find_neighbors(points[:, :1], points, radius=0.5, count=3)
    tensor([[[0, 2, 0]]])
    """
    total = points.shape[1]
    outside = torch.cdist(centers, points) > radius
    order = torch.arange(total, device=points.device).expand(outside.shape).masked_fill(outside, total)
    found = order.sort(-1).values[..., :count]
    return torch.where(found == total, found[..., :1], found)


def take_points(points: Float[Tensor, "batch points d"], index: Int[Tensor, "batch k"]) -> Float[Tensor, "batch k d"]:
    """Return the points of each cloud at the indices of that cloud.

    >>> take_points(torch.arange(6.0).view(1, 3, 2), torch.tensor([[2, 0]]))
    tensor([[[4., 5.],
             [0., 1.]]])
    """
    return points.gather(1, index[..., None].expand(-1, -1, points.shape[-1]))


class PointNet2Options(ConvOptions, total=False):
    """The arguments of :class:`PointNet2`."""

    centers: tuple[int, int]
    dropout: float


def pointnet2(num_classes: int | None = 40, **options: Unpack[PointNet2Options]) -> PointNet2:
    """Build PointNet++ of 6.6.2; see :class:`PointNet2`.

    >>> pointnet2(40, width=0.1, centers=(8, 4)).eval()(torch.randn(2, 3, 20)).shape
    torch.Size([2, 40])
    """
    return PointNet2(num_classes, **options)
