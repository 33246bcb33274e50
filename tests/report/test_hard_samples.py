"""The worst pairs and the confusions, compared with brute force."""

import torch

from hypersphere.data.audio_preprocessing import encode_wav
from hypersphere.evaluation import Evidence
from hypersphere.report.hard_samples import (
    MAX_SOUND_BYTES,
    _Sounds,
    find_worst_pairs,
    list_confusions,
    make_hard_section,
)
from hypersphere.report.page_parts import Grid
from hypersphere.report.runs import read_runs
from hypersphere.report.score_charts import ScoredPairs
from tests.report.runs_for_tests import evidence, write_run

KEPT = evidence(spread=0.6)


def test_the_worst_come_first_and_nobody_is_everywhere():
    pairs = ScoredPairs.of(KEPT)
    far, near = find_worst_pairs(pairs, True, KEPT.labels), find_worst_pairs(pairs, False, KEPT.labels)
    assert float(pairs.degrees[far[0]]) == float(pairs.degrees[pairs.same].max())
    assert float(pairs.degrees[near[0]]) == float(pairs.degrees[~pairs.same].min())
    assert bool(pairs.same[far].all())
    assert not bool(pairs.same[near].any())
    for chosen in (far, near):
        ends = torch.cat([pairs.first[chosen], pairs.second[chosen]])
        assert int(torch.bincount(ends).max()) <= 2


def test_the_worst_pairs_are_of_different_people():
    pairs = ScoredPairs.of(KEPT)
    for same, most in ((True, 4), (False, 6)):
        chosen = find_worst_pairs(pairs, same, KEPT.labels, count=most)
        classes = KEPT.labels[torch.stack([pairs.first[chosen], pairs.second[chosen]], 1)].sort(1).values
        assert len({tuple(row) for row in classes.tolist()}) == most


def test_two_people_fill_the_list():
    kept = evidence(classes=("ant", "bee"), spread=0.6)
    pairs = ScoredPairs.of(kept)
    assert len(find_worst_pairs(pairs, False, kept.labels)) == 8


def test_confusions_are_those_of_the_nearest_neighbour():
    unit = KEPT.features.double() / KEPT.features.double().norm(dim=1, keepdim=True)
    expected = set()
    for i, row in enumerate(unit):
        others = [(float(row @ other), j) for j, other in enumerate(unit) if j != i]
        nearest = max(others)[1]
        if KEPT.labels[nearest] != KEPT.labels[i]:
            expected.add((int(KEPT.labels[i]), int(KEPT.labels[nearest]), i))
    found = list_confusions(KEPT.features, KEPT.labels)
    assert {(a, b, int(i)) for a, b, samples, _ in found for i in samples} == expected
    assert [len(samples) for _, _, samples, _ in found] == sorted((len(s) for _, _, s, _ in found), reverse=True)


def test_without_pictures_there_are_tables(tmp_path):
    runs = read_runs([write_run(tmp_path / "a", kept=evidence(images=False))])
    section = make_hard_section(runs, {"a": ScoredPairs.of(runs[0].evidence)}, {})
    assert all(isinstance(block, Grid) for block in section.blocks)


def test_recordings_of_the_hardest_pairs_can_be_played(tmp_path):
    samples = 8000 * torch.ones(3, 100)
    for i in range(3):
        (tmp_path / f"{i}.wav").write_bytes(encode_wav(samples[i] / 32768, 16000))
    (tmp_path / "3.wav").write_bytes(b"no sound")
    (tmp_path / "4.wav").write_bytes(encode_wav(torch.zeros(MAX_SOUND_BYTES), 16000))
    names = [str(tmp_path / f"{i}.wav") for i in range(6)]
    evidence = Evidence(torch.randn(6, 3), torch.arange(6) // 2, ["a", "b", "c"], total=6, names=names)
    sounds = _Sounds(evidence)
    found = [sounds.find(i) for i in range(6)]
    assert found[0].startswith("data:audio/wav;base64,UklGR")
    assert all(found[1:3])
    assert found[3:] == ["", "", ""], "no recording, too large, not here"
    sounds = _Sounds(evidence)
    sounds.left = 300
    assert [bool(sounds.find(i)) for i in (0, 1, 0)] == [True, False, True]
