import zipfile

import pytest
import torch

from hypersphere.data import CorruptDataError, MissingDataError, Omniglot, one_shot_runs

from .files import encoded, random, write

NAMES = [f"{i:02}" for i in range(1, 21)]


def files(runs=2, seed=0):
    """Runs of the published format; the answer to item i of run r is class (i + r) mod 20."""
    made = {}
    for r in range(1, runs + 1):
        for i, name in enumerate(NAMES):
            made[f"run{r:02}/test/item{name}.png"] = encoded(
                255 * random(105, 105, high=2, seed=seed + 100 * r + i), bits=True
            )
            made[f"run{r:02}/training/class{name}.png"] = encoded(
                255 * random(105, 105, high=2, seed=seed + 100 * r + 50 + i), bits=True
            )
        lines = [
            f"run{r:02}/test/item{NAMES[i]}.png run{r:02}/training/class{NAMES[(i + r) % 20]}.png" for i in range(20)
        ]
        made[f"run{r:02}/class_labels.txt"] = "\n".join(lines).encode() + b"\n"
    return made


def archive(root, content, name="one_shot_all_runs.zip"):
    """The runs, beside the drawings by which the folder is known."""
    write(root / "omniglot" / "images_evaluation", {"A/c/1.png": encoded(random(105, 105))})
    with zipfile.ZipFile(root / "omniglot" / name, "w") as packed:
        for member, data in content.items():
            packed.writestr(member, data)
    return root


@pytest.mark.parametrize("name", ["one_shot_all_runs.zip", "all_runs.zip"])
def test_reads_the_runs(tmp_path, name):
    runs = one_shot_runs(archive(tmp_path, files(), name))
    assert len(runs) == 2
    for r, run in enumerate(runs, 1):
        assert run.answers.tolist() == [(i + r) % 20 for i in range(20)]
        for i in range(20):
            assert torch.equal(run.query[i, 0], 255 * torch.from_numpy(random(105, 105, high=2, seed=100 * r + i)))
            assert torch.equal(
                run.support[i, 0], 255 * torch.from_numpy(random(105, 105, high=2, seed=100 * r + 50 + i))
            )


def test_resizes_as_omniglot_does(tmp_path):
    content = files(1)
    archive(tmp_path, content)
    write(tmp_path / "omniglot" / "images_evaluation", {"A/c/1.png": content["run01/test/item01.png"]})
    assert torch.equal(
        one_shot_runs(tmp_path, size=28)[0].query[0], Omniglot(tmp_path, background=False, size=28).data[0]
    )


def without(name):
    return {key: value for key, value in files(1).items() if key != name}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "found no run"),
        (without("run01/class_labels.txt"), r"run01/class_labels.txt: found 0 lines, expected 20 different queries"),
        (without("run01/training/class20.png"), "run01: found 19 classes"),
        (without("run01/test/item20.png"), "answers to other queries"),
        (files(1) | {"run01/class_labels.txt": b"a b c\n" * 20}, "found 20 lines"),
        (files(1) | {"run01/test/item03.png": encoded(random(28, 28))}, "item03.png: found .*28×28 pixels"),
        (
            files(1)
            | {"run01/class_labels.txt": files(1)["run01/class_labels.txt"].replace(b"class07.png", b"class21.png")},
            "an answer that is no class of the run",
        ),
    ],
)
def test_says_what_is_wrong(tmp_path, content, message):
    with pytest.raises(CorruptDataError, match=message):
        one_shot_runs(archive(tmp_path, content))


def test_a_truncated_archive_is_refused(tmp_path):
    archive(tmp_path, files(1))
    path = tmp_path / "omniglot" / "one_shot_all_runs.zip"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CorruptDataError, match=r"one_shot_all_runs.zip: found a damaged archive"):
        one_shot_runs(tmp_path)


def test_absent_says_what_and_how(tmp_path):
    write(tmp_path / "omniglot" / "images_evaluation", {"A/c/1.png": encoded(random(105, 105))})
    with pytest.raises(
        MissingDataError,
        match=r"holds no one_shot_all_runs.zip or all_runs.zip; `hypersphere data get omniglot --force`",
    ):
        one_shot_runs(tmp_path)


def test_the_real_runs(real):
    try:
        runs = one_shot_runs(real("omniglot"), size=28)
    except MissingDataError as absent:
        pytest.skip(str(absent))
    assert len(runs) == 20
    for run in runs:
        assert run.support.shape == run.query.shape == (20, 1, 28, 28)
        assert sorted(run.answers.tolist()) == list(range(20))
    assert runs[0].answers[:4].tolist() == [7, 8, 1, 18]
