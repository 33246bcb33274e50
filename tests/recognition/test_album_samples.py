import os

from hypersphere.recognition.album_samples import absolute_path, read_file_state


def test_the_state_of_a_file_reveals_a_change(tmp_path):
    file = tmp_path / "party.jpg"
    assert read_file_state(str(file)) == ""
    file.write_bytes(b"one")
    before = read_file_state(str(file))
    assert before == read_file_state(str(file))
    file.write_bytes(b"longer")
    assert read_file_state(str(file)) != before


def test_only_paths_of_files_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "party.jpg").touch()
    assert absolute_path("party.jpg") == os.path.join(os.getcwd(), "party.jpg")
    assert absolute_path("shards.tar/party.jpg") == "shards.tar/party.jpg"
