import shutil

import pytest
import torch

from hypersphere.recognition import DamagedGalleryError, Gallery
from hypersphere.recognition.stores.sqlite_check import MAX_LISTED_PROBLEMS


@pytest.fixture
def gallery(tmp_path):
    with Gallery(tmp_path / "people.db") as gallery:
        gallery.enrol([f"p{i // 4}" for i in range(40)], torch.randn(40, 6), [f"{i}.png" for i in range(40)])
        gallery.remove("p5")
        yield gallery


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("UPDATE identities SET name = 'eve' WHERE id = 2", "the name 'eve' does not match its checksum"),
        ("DELETE FROM identities WHERE id = 2", "9 identities were enrolled, 8 are stored"),
        ("DELETE FROM templates WHERE number = 7", "36 templates were enrolled, 35 are listed"),
        ("UPDATE templates SET source = 'x' WHERE number = 7", "template 7 of x does not match its checksum"),
        ("INSERT INTO removed VALUES (7, 0)", "template 7 of 6.png has no identity or no feature"),
        ("UPDATE meta SET value = '9' WHERE key = 'next'", "its setting 'next' does not match its checksum"),
    ],
)
def test_damage_to_the_database_is_named(gallery, damage, message):
    assert gallery.check() == []
    gallery._store._db.execute(damage)
    assert any(message in problem for problem in gallery.check())


def test_damage_to_features_is_named_and_counted(gallery, tmp_path):
    path = tmp_path / "people.db.features-0"
    content = bytearray(path.read_bytes())
    for row in range(30):
        content[32 + row * 40 + 20] ^= 1
    path.write_bytes(content)
    problems = gallery.check()
    assert problems[0] == "people.db.features-0: template 1 does not match its checksum"
    assert len(problems) == MAX_LISTED_PROBLEMS + 1
    assert problems[-1] == "and 6 more like the last"  # 30 are damaged; 4 of them belong to removed templates


def test_features_of_another_gallery_are_refused_and_found(gallery, tmp_path):
    with Gallery(tmp_path / "other.db") as other:
        other.enrol([f"q{i // 4}" for i in range(40)], torch.randn(40, 6), [f"{i}.png" for i in range(40)])
    gallery.backup(tmp_path / "copy.db")
    for name in ("other.db", "copy.db"):
        shutil.copy(tmp_path / f"{name}.features-0", tmp_path / "people.db.features-0")
        assert "belongs to another gallery" in gallery.check()[0]
        with Gallery(tmp_path / "people.db") as opened:
            for use in (
                lambda g=opened: g.identify(torch.randn(6), threshold=0.5),
                lambda g=opened: g.verify("p1", torch.randn(6), threshold=0.5),
                lambda g=opened: g.enrol("new", torch.randn(6)),
            ):
                with pytest.raises(DamagedGalleryError, match="belongs to another gallery"):
                    use()
