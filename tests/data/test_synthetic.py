import pytest
import torch

from hypersphere.data import PlantedGraph, Shapes


def test_edges_are_more_frequent_within_classes():
    graph = PlantedGraph(nodes=240)
    same = (graph.labels[graph.edges[:, 0]] == graph.labels[graph.edges[:, 1]]).double().mean().item()
    assert 0.65 < same < 0.85  # 0.1·(1/4) of the pairs within classes, 0.01·(3/4) between them
    own = graph.labels[:, None] == torch.arange(32) % 4
    assert graph.data[own].mean() > 2 * graph.data[~own].mean()


def test_a_graph_is_simple_and_its_parts_are_disjoint():
    graph = PlantedGraph(nodes=60)
    assert (graph.edges[:, 0] < graph.edges[:, 1]).all()
    assert torch.cat([graph.train, graph.valid, graph.test]).sort().values.tolist() == list(range(60))
    assert graph.edge_index.shape == (2, 2 * len(graph.edges))
    assert torch.equal(graph[3][0], graph.data[3])
    assert graph[3][1] == 3
    assert len(graph) == 60


def test_the_same_seed_gives_the_same_data():
    assert torch.equal(PlantedGraph(seed=3).edges, PlantedGraph(seed=3).edges)
    assert not torch.equal(PlantedGraph(seed=3).data, PlantedGraph(seed=4).data)
    assert torch.equal(Shapes(count=4, seed=3).data, Shapes(count=4, seed=3).data)
    assert not torch.equal(Shapes(count=4, seed=3).data, Shapes(count=4, seed=4).data)


def test_clouds_are_centered_in_the_unit_ball():
    shapes = Shapes(points=100, count=5)
    assert shapes.data.dtype == torch.float32
    torch.testing.assert_close(shapes.data.mean(1), torch.zeros(20, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(shapes.data.norm(dim=2).amax(1), torch.ones(20))


def test_solids_differ_in_their_shape():
    shapes = Shapes(points=2000, count=4)
    assert shapes.labels.tolist() == sorted(shapes.labels.tolist())
    third = (shapes.data[..., 2] - shapes.data[..., 2].mean(1, keepdim=True)).pow(3).mean(1).reshape(4, 4).abs().mean(1)
    assert third[3] > 3 * third[:3].max()  # only a cone has two different ends


def test_test_clouds_differ_from_training_clouds():
    train, test = Shapes(count=8), Shapes(train=False, count=8)
    assert len(test) == 8
    assert not any(torch.equal(cloud, other) for cloud in test.data for other in train.data)


@pytest.mark.parametrize("wrong", [{"nodes": 10}, {"classes": 1}, {"within": 0.1, "between": 0.2}])
def test_refuses_graphs(wrong):
    with pytest.raises(ValueError, match="classes and features must be ≥ 2"):
        PlantedGraph(**wrong)


def test_refuses_clouds():
    with pytest.raises(ValueError, match="points must be ≥ 1 and count ≥ 4, got 0 and 64"):
        Shapes(points=0)
