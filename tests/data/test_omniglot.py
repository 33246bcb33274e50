import zipfile

import pytest
import torch

from hypersphere.data import CorruptDataError, MissingDataError, Omniglot, one_shot_runs

from .contracts import ReaderContract
from .files import digest, encoded, random, tar, write

DRAWINGS = {
    f"images_{part}/{alphabet}/character{c:02}/{c:04}_{drawer:02}.png": random(105, 105, high=2, seed=100 * c + drawer)
    * 255
    for part, alphabet, characters in (
        ("background", "Greek", 2),
        ("background", "Braille", 1),
        ("evaluation", "Tengwar", 2),
    )
    for c in range(1, characters + 1)
    for drawer in (2, 1)
}
FILES = {name: encoded(pixels, bits=True) for name, pixels in DRAWINGS.items()}


class TestTar(ReaderContract):
    name = "omniglot"

    def make(self, root):
        tar(root / "omniglot" / "omniglot_png.tar.xz", FILES)

    def read(self, root):
        return Omniglot(root)

    def test_classes_are_characters_in_sorted_order(self, tmp_path):
        self.make(tmp_path)
        dataset = self.read(tmp_path)
        assert dataset.classes == ("Braille/character01", "Greek/character01", "Greek/character02")
        assert dataset.labels.tolist() == [0, 0, 1, 1, 2, 2]
        assert dataset.alphabets.tolist() == [0, 0, 1, 1, 1, 1]
        names = sorted(name for name in DRAWINGS if "background" in name)
        assert torch.equal(dataset.data[:, 0], torch.stack([torch.from_numpy(DRAWINGS[name]) for name in names]))

    def test_the_two_sets_share_no_character(self, tmp_path):
        self.make(tmp_path)
        assert not set(self.read(tmp_path).classes) & set(Omniglot(tmp_path, background=False).classes)

    def test_held_out_alphabets_replace_the_evaluation_set(self, tmp_path):
        self.make(tmp_path)
        train, held = (Omniglot(tmp_path, background=background, held_out=1) for background in (True, False))
        assert sorted((*train.classes, *held.classes)) == sorted(self.read(tmp_path).classes)
        alphabets = [{name.partition("/")[0] for name in part.classes} for part in (train, held)]
        assert [len(part) for part in alphabets] == [1, 1]
        assert not alphabets[0] & alphabets[1]
        assert torch.equal(Omniglot(tmp_path, background=False, held_out=1).data, held.data)
        assert sorted(held.labels.unique().tolist()) == list(range(len(held.classes)))

    @pytest.mark.parametrize("held_out", [-1, 2, 30])
    def test_not_all_alphabets_can_be_held_out(self, tmp_path, held_out):
        self.make(tmp_path)
        with pytest.raises(ValueError, match=f"held_out must lie in 0 … 1, the alphabets but one, got {held_out}"):
            Omniglot(tmp_path, held_out=held_out)

    def test_resizes(self, tmp_path):
        self.make(tmp_path)
        assert Omniglot(tmp_path, background=False, size=28).data.shape == (4, 1, 28, 28)


class TestZip(TestTar):
    def make(self, root):
        (root / "omniglot").mkdir(parents=True)
        for part in ("background", "evaluation"):
            with zipfile.ZipFile(root / "omniglot" / f"images_{part}.zip", "w") as archive:
                for name, content in FILES.items():
                    if part in name:
                        archive.writestr(name, content)


class TestFolder(TestTar):
    examples = 25

    def make(self, root):
        write(root / "omniglot", FILES)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"images_background/A/c/1.png": encoded(random(104, 105))},
            "104×105 pixels.*expected a whole image of 105×105 pixels",
        ),
        ({"images_background/A/c/1.png": b"none"}, "images_background/A/c/1.png: found 4 bytes that do not decode"),
        ({"images_evaluation/A/c/1.png": encoded(random(105, 105))}, "no picture, expected images_background/"),
    ],
)
def test_errors_describe_the_problem(tmp_path, files, message):
    tar(tmp_path / "omniglot" / "omniglot_png.tar.xz", files)
    with pytest.raises(CorruptDataError, match=message):
        Omniglot(tmp_path)


@pytest.mark.parametrize(
    ("background", "characters", "data", "small"),
    [
        (True, 964, "f32435a80e3966c7aa29e20298c2c9ec9947dbf555cecea37d51cfc8e1365fa0", "5f15da4d1aaf63db"),
        (False, 659, "eb68a59f8009779aa59cff308d7af8e3b946a55d740dad6a8ed9364f7c20fa27", "d46a9e1f7847fd09"),
    ],
)
@pytest.mark.slow
def test_the_real_set(real, background, characters, data, small):
    dataset = Omniglot(real("omniglot"), background=background)
    assert dataset.data.shape == (characters * 20, 1, 105, 105)
    assert torch.bincount(dataset.labels).tolist() == [20] * characters
    assert digest(dataset.data) == data
    assert dataset.data.unique().tolist() == [0, 255]
    assert int(dataset.alphabets.max()) + 1 == (30 if background else 20)
    assert digest(Omniglot(real("omniglot"), background=background, size=28).data).startswith(small)


NAMES = [f"{i:02}" for i in range(1, 21)]


def make_runs(runs=2, seed=0):
    """Return runs of the published format; the answer to item i of run r is class (i + r) mod 20."""
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


def write_runs(root, content, name="one_shot_all_runs.zip"):
    """Write the runs and a drawing that identifies the folder."""
    write(root / "omniglot" / "images_evaluation", {"A/c/1.png": encoded(random(105, 105))})
    with zipfile.ZipFile(root / "omniglot" / name, "w") as packed:
        for member, data in content.items():
            packed.writestr(member, data)
    return root


@pytest.mark.parametrize("name", ["one_shot_all_runs.zip", "all_runs.zip"])
def test_reads_the_runs(tmp_path, name):
    runs = one_shot_runs(write_runs(tmp_path, make_runs(), name))
    assert len(runs) == 2
    for r, run in enumerate(runs, 1):
        assert run.answers.tolist() == [(i + r) % 20 for i in range(20)]
        for i in range(20):
            assert torch.equal(run.query[i, 0], 255 * torch.from_numpy(random(105, 105, high=2, seed=100 * r + i)))
            assert torch.equal(
                run.support[i, 0], 255 * torch.from_numpy(random(105, 105, high=2, seed=100 * r + 50 + i))
            )


def test_runs_are_resized_as_omniglot_is(tmp_path):
    content = make_runs(1)
    write_runs(tmp_path, content)
    write(tmp_path / "omniglot" / "images_evaluation", {"A/c/1.png": content["run01/test/item01.png"]})
    assert torch.equal(
        one_shot_runs(tmp_path, size=28)[0].query[0], Omniglot(tmp_path, background=False, size=28).data[0]
    )


def make_run_without(name):
    return {key: value for key, value in make_runs(1).items() if key != name}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "found no run"),
        (
            make_run_without("run01/class_labels.txt"),
            r"run01/class_labels.txt: found 0 lines, expected 20 different queries",
        ),
        (make_run_without("run01/training/class20.png"), "run01: found 19 classes"),
        (make_run_without("run01/test/item20.png"), "answers to other queries"),
        (make_runs(1) | {"run01/class_labels.txt": b"a b c\n" * 20}, "found 20 lines"),
        (make_runs(1) | {"run01/test/item03.png": encoded(random(28, 28))}, "item03.png: found .*28×28 pixels"),
        (
            make_runs(1)
            | {
                "run01/class_labels.txt": make_runs(1)["run01/class_labels.txt"].replace(b"class07.png", b"class21.png")
            },
            "an answer that is no class of the run",
        ),
    ],
)
def test_errors_describe_the_problem_of_runs(tmp_path, content, message):
    with pytest.raises(CorruptDataError, match=message):
        one_shot_runs(write_runs(tmp_path, content))


def test_a_truncated_archive_of_runs_is_refused(tmp_path):
    write_runs(tmp_path, make_runs(1))
    path = tmp_path / "omniglot" / "one_shot_all_runs.zip"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CorruptDataError, match=r"one_shot_all_runs.zip: found a damaged archive"):
        one_shot_runs(tmp_path)


def test_absent_runs_are_named_with_their_remedy(tmp_path):
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
