import os
import random
import signal
import stat
import time

import pytest
import torch
from PIL import Image

from hypersphere.data import PicturePreprocessing
from hypersphere.evaluation import clustering
from hypersphere.evaluation.score_calibration import LogisticCalibration
from hypersphere.recognition import Album, Embedder, Gallery
from tests.processes import forked
from tests.recognition.test_grouping import CALIBRATION, people


@pytest.fixture
def album(tmp_path):
    with Album(tmp_path / "party.album") as made:
        yield made


def filled(album, count=5, each=6):
    features, labels = people(count, each)
    album.add_features(features, [f"{i}.jpg" for i in range(len(features))])
    album.group(CALIBRATION)
    return features, labels


def state(album):
    """Return everything that corrections can change."""
    return (
        {(group.id, group.name, group.size) for group in album.groups()},
        {(sample.id, sample.group) for sample in album.samples()},
    )


def test_groups_and_names(album):
    filled(album)
    first = album.groups()[0]
    album.name(first.id, " ada ")
    named = {group.name: group.size for group in album.groups() if group.name}
    assert named == {"ada": 6}
    assert album.check() == []
    assert "30 samples, 5 groups, 1 named" in repr(album)


def test_the_name_of_another_group_merges(album):
    filled(album)
    one, other = album.groups()[:2]
    album.name(one.id, "ada")
    assert album.name(other.id, "ada") == one.id
    assert {group.name: group.size for group in album.groups()}["ada"] == 12


def test_every_correction_is_taken_back(album):
    filled(album)
    one, other, third = (group.id for group in album.groups()[:3])
    samples = [sample.id for sample in album.members(third)]
    changes = [
        lambda: album.name(one, "ada"),
        lambda: album.merge([one, other]),
        lambda: album.split(samples[:2]),
        lambda: album.reject(samples[3]),
        lambda: album.assign(samples[3], one),
        lambda: album.confirm(third),
        lambda: album.name(one, None),
        lambda: album.group(CALIBRATION),
    ]
    states = [state(album)]
    for change in changes:
        change()
        assert album.check() == []
        states.append(state(album))
    taken = []
    for before in reversed(states[:-1]):
        while state(album) != before:  # a correction without an effect needs no undo
            taken.append(album.undo())
            assert taken[-1] is not None
        assert album.check() == []
    assert "name group" in taken[-1]
    assert sum(undone for _, _, undone in album.history()) >= len(taken)


def test_not_this_person_survives_grouping(album):
    filled(album)
    group = album.groups()[0].id
    album.name(group, "ada")
    sample = album.members(group)[0].id
    album.reject(sample)
    album.group(CALIBRATION)
    assert sample not in {one.id for one in album.members(group)}
    assert sample in {one.id for one in album.unassigned()}
    assert album.undo()
    assert sample in {one.id for one in album.members(group)}


def test_split_groups_stay_apart(album):
    filled(album)
    group = album.groups()[0].id
    part = [sample.id for sample in album.members(group)[:3]]
    new = album.split(part)
    album.group(CALIBRATION)
    assert {sample.id for sample in album.members(new)} == set(part)
    assert len(album.members(group)) == 3


def test_names_survive_the_second_half_of_the_photographs(album):
    features, labels = people(30, 10, noise=0.4)
    half = torch.arange(len(features)) % 2 == 0
    ids = album.add_features(features[half], [f"a{i}.jpg" for i in range(int(half.sum()))])
    album.group(CALIBRATION)
    for group in album.groups():
        album.name(group.id, f"person {group.id}")
    names = {group.id: group.name for group in album.groups()}
    before = {sample.id: names[sample.group] for sample in album.samples() if sample.group is not None}
    assert len(before) > 100
    more = album.add_features(features[~half], [f"b{i}.jpg" for i in range(int((~half).sum()))])
    album.group(CALIBRATION)
    after_names = {group.id: group.name for group in album.groups()}
    after = {sample.id: after_names.get(sample.group) for sample in album.samples()}
    assert all(after[sample] == name for sample, name in before.items())
    assert sum(after[sample] is not None for sample in more) > 100
    groups = {sample.id: -1 if sample.group is None else sample.group for sample in album.samples()}
    truth = torch.cat([labels[half], labels[~half]])
    assert clustering(truth, torch.tensor([groups[i] for i in ids + more])).pairwise_precision == 1


def test_unassigned_samples_are_revisited(album):
    album.add_features(torch.tensor([[1.0, 0.0]]), ["1.jpg"])
    album.group(CALIBRATION)
    assert len(album.unassigned()) == 1
    album.add_features(torch.tensor([[1.0, 0.01]]), ["2.jpg"])
    album.group(CALIBRATION)
    assert album.unassigned() == []


def test_the_people_of_a_gallery_give_their_names(album, tmp_path):
    features, _ = people(3, 6)
    with Gallery(tmp_path / "known.db", "3f9c") as gallery:
        gallery.enrol("ada", features[:3])
        assert album.add_gallery(gallery) == 1
        assert album.add_gallery(gallery) == 0
    album.add_features(features, [f"{i}.jpg" for i in range(18)])
    album.group(CALIBRATION)
    named = next(group for group in album.groups() if group.name == "ada")
    assert named.size == 9
    assert len([sample for sample in album.samples() if sample.group == named.id]) == 6  # templates are not samples


def test_groups_are_sorted_by_doubt(album):
    features, _ = people(3, 6)
    odd = torch.cat([features, features[:1] + features[6:7]])  # between two people
    album.add_features(odd, [f"{i}.jpg" for i in range(19)])
    album.group(LogisticCalibration(slope=30.0, offset=-12.0), prior=0.3)
    doubts = [group.doubt for group in album.groups()]
    assert doubts == sorted(doubts, reverse=True)
    assert doubts[0] > doubts[-1]
    least = album.members(album.groups()[0].id)
    assert [one.probability for one in least] == sorted(one.probability for one in least)


def flat():
    return Embedder(torch.nn.Flatten(), PicturePreprocessing(size=(6, 6), channels=1))


def photographs(folder, count=4, each=3):
    folder.mkdir(exist_ok=True)
    draw = torch.Generator().manual_seed(3)
    base = torch.randint(0, 256, (count, 6, 6), generator=draw)
    for i in range(count * each):
        pixels = (base[i // each] + torch.randint(-5, 6, (6, 6), generator=draw)).clamp(0, 255).byte()
        Image.fromarray(pixels.numpy()).resize((60, 60), Image.Resampling.NEAREST).save(folder / f"{i:02d}.png")


def test_photographs_are_added_once_and_again_when_they_change(album, tmp_path):
    photographs(tmp_path / "photos")
    (tmp_path / "photos" / "broken.png").write_bytes(b"no picture")
    steep = LogisticCalibration(slope=300.0, offset=-290.0)
    added = album.add(tmp_path / "photos", flat(), calibration=steep)
    assert (added.photographs, added.samples, added.known) == (12, 12, 0)
    assert list(added.problems) == [str(tmp_path / "photos" / "broken.png")] == list(album.problems())
    assert sorted(group.size for group in album.groups()) == [3, 3, 3, 3]
    sample = album.samples()[0]
    with Image.open(album.thumbnail(sample.id)) as thumbnail:
        assert thumbnail.size == (60, 60)
    assert stat.S_IMODE(os.stat(album.path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(album.thumbnails).st_mode) == 0o700
    again = album.add(tmp_path / "photos", flat(), calibration=steep)
    assert (again.photographs, again.known) == (0, 13)
    os.utime(sample.path, (1, 1))
    changed = album.add(tmp_path / "photos", flat(), calibration=steep)
    assert (changed.photographs, changed.samples, changed.known) == (1, 1, 12)
    assert len(album.samples()) == 12
    assert album.check() == []


def test_features_of_another_model_are_refused(album, tmp_path):
    photographs(tmp_path / "photos", 2, 2)
    album.add(tmp_path / "photos", flat(), calibration=CALIBRATION)
    other = Embedder(torch.nn.Flatten(), PicturePreprocessing(size=(4, 4), channels=1))
    with pytest.raises(ValueError, match="holds features of model"):
        album.add(tmp_path / "photos", other, calibration=CALIBRATION)


def test_what_cannot_be_done_is_refused(album):
    filled(album)
    group = album.groups()[0].id
    for work, message in (
        (lambda: album.name(999, "ada"), "there is no group 999"),
        (lambda: album.name(group, "\n"), "name"),
        (lambda: album.merge([group]), "at least two groups"),
        (lambda: album.split([sample.id for sample in album.members(group)]), "must leave samples"),
        (lambda: album.split([]), "samples of one group"),
        (lambda: album.reject(10**6), "there is no sample"),
    ):
        before = state(album)
        with pytest.raises(ValueError, match=message):
            work()
        assert state(album) == before


def test_files_that_are_no_album_are_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no album"):
        Album(tmp_path / "none.album", create=False)
    (tmp_path / "text").write_text("no database at all, and long enough to be none")
    with pytest.raises(ValueError, match="cannot be opened as an album"):
        Album(tmp_path / "text")
    Gallery(tmp_path / "gallery.db").close()
    with pytest.raises(ValueError, match="not an album"):
        Album(tmp_path / "gallery.db")
    assert not (tmp_path / "none.album").exists()


def correct_forever(path, log, seed):
    """Make random corrections. Write a line after each one that returned."""
    draw = random.Random(seed)
    with Album(path) as album, open(log, "a", buffering=1) as said:
        for i in range(10**6):
            groups = album.groups()
            group = draw.choice(groups)
            kind = draw.randrange(4)
            if kind == 0:
                album.name(group.id, f"name {seed} {i}")
                said.write(f"name {group.id} name {seed} {i}\n")
            elif kind == 1 and len(groups) > 3:
                album.merge([group.id, next(one.id for one in groups if one.id != group.id)])
                said.write("merged\n")
            elif kind == 2 and group.size > 2:
                album.split([album.members(group.id)[0].id])
                said.write("split\n")
            elif group.size > 2:
                sample = album.members(group.id)[0].id
                album.reject(sample)
                said.write(f"reject {sample} {group.id}\n")


def test_a_kill_at_any_moment_loses_nothing_that_was_acknowledged(tmp_path):
    path, log = tmp_path / "party.album", tmp_path / "log"
    with Album(path) as album:
        filled(album, 10, 8)
    draw = random.Random(0)
    for kill in range(6):
        before = len(log.read_text().splitlines()) if log.exists() else 0
        with Album(path) as album:
            steps = album.revision
        process = forked().Process(target=correct_forever, args=(str(path), str(log), kill))
        process.start()
        end = time.monotonic() + 60
        while not log.exists() or len(log.read_text().splitlines()) <= before:
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.15))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        acknowledged = log.read_text().splitlines()[before:]
        with Album(path) as album:
            assert album.check() == []
            # The history has every acknowledged correction. At most one more was committed but not acknowledged.
            assert 0 <= album.revision - steps - len(acknowledged) <= 1
            last = acknowledged[-1].split(maxsplit=2)
            if last[0] == "name" and album.revision - steps == len(acknowledged):
                assert {group.id: group.name for group in album.groups()}[int(last[1])] == last[2]
            assert album.undo() is not None
            assert album.check() == []
