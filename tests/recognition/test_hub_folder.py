import json
import sys
import types

import pytest
import torch

import hypersphere as hs
from hypersphere.recognition import Embedder, evaluate, push_hub_folder, write_hub_folder
from tests.recognition.drawn import draw_folder, small_embedder


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return json.loads(evaluate(small_embedder(), draw_folder(tmp_path_factory.mktemp("people")), fars=(0.1,)).json())


def test_a_folder_is_read_again(tmp_path, report):
    folder = write_hub_folder(small_embedder(), tmp_path / "mine", licence="mit", report=report)
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    loaded = hs.load(folder)
    images = torch.randint(0, 256, (3, 1, 16, 16)).to(torch.uint8)
    torch.testing.assert_close(loaded(images), small_embedder()(images))
    config = json.loads((folder / "config.json").read_text())
    assert config["fingerprint"] == loaded.fingerprint
    assert config["network"]["call"] == "sphereface4"


def test_the_card_has_the_licence_and_every_figure(tmp_path, report):
    card = (write_hub_folder(small_embedder(), tmp_path, licence="cc-by-4.0", report=report) / "README.md").read_text()
    header = card.split("---")[1]
    assert 'license: "cc-by-4.0"' in header
    assert "library_name: hypersphere" in header
    eer = report["figures"]["EER"]
    assert f"| EER | {100 * eer['value']:.4g} % | {100 * eer['interval'][0]:.4g} … " in card
    assert all(f"| {name} |" in card for name in report["figures"])


def test_a_card_without_report_says_so(tmp_path):
    card = (write_hub_folder(small_embedder(), tmp_path, licence="other", title="Mine") / "README.md").read_text()
    assert "# Mine" in card
    assert "There are no measured figures" in card


def test_the_hubs_own_reader_takes_the_card(tmp_path):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    write_hub_folder(small_embedder(), tmp_path, licence="mit")
    card = huggingface_hub.ModelCard.load(tmp_path / "README.md")
    assert (card.data.license, card.data.library_name) == ("mit", "hypersphere")


class Api:
    calls: list = []  # noqa: RUF012

    def create_repo(self, name, **options):
        self.calls.append(("create", name, options))

    def upload_folder(self, **options):
        if "refused" in options["repo_id"]:
            raise RuntimeError("no right to write\nmore")
        self.calls.append(("upload", options))
        return f"https://hub/{options['repo_id']}"


def test_a_folder_is_pushed_when_asked(tmp_path, monkeypatch):
    stand_in = types.ModuleType("huggingface_hub")
    stand_in.HfApi = Api
    monkeypatch.setitem(sys.modules, "huggingface_hub", stand_in)
    assert push_hub_folder(tmp_path, "me/mine") == "https://hub/me/mine"
    assert Api.calls[0] == ("create", "me/mine", {"private": True, "exist_ok": True})
    assert "README.md" in Api.calls[1][1]["allow_patterns"]
    with pytest.raises(ValueError, match=r"could not be uploaded to me/refused: no right to write$"):
        push_hub_folder(tmp_path, "me/refused")
    with pytest.raises(ValueError, match="name must have the form owner/name"):
        push_hub_folder(tmp_path, "mine")


def test_refuses(tmp_path):
    with pytest.raises(ValueError, match="licence must be"):
        write_hub_folder(small_embedder(), tmp_path, licence=" ")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="folder must be a folder, got the file"):
        write_hub_folder(small_embedder(), tmp_path / "file", licence="mit")
    with pytest.raises(ValueError, match="content of a report"):
        write_hub_folder(small_embedder(), tmp_path, licence="mit", report={"figures": [1]})
    alone = Embedder(small_embedder().network, small_embedder().preprocessing)
    with pytest.raises(ValueError, match="cannot be saved without the constructor call"):
        write_hub_folder(alone, tmp_path, licence="mit")
