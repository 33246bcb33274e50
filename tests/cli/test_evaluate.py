import json

import pytest

from hypersphere.cli.main import main
from tests.processes import typed
from tests.recognition.drawn import draw_folder, small_embedder


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    small_embedder().save(folder / "one.safetensors")
    small_embedder(1).save(folder / "two.safetensors")
    draw_folder(folder / "people", 6, 5)
    draw_folder(folder / "strangers", 3, 4)
    lines = [f"people/person{p}/person{p}_0001.png people/person{p}/person{p}_0002.png 1" for p in range(6)]
    lines += [
        f"people/person{p}/person{p}_0001.png people/person{(p + 1) % 6}/person{(p + 1) % 6}_0002.png 0"
        for p in range(6)
    ]
    (folder / "pairs.txt").write_text("\n".join(lines))
    return folder


def run(capsys, *words):
    code = main(["evaluate", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def test_prints_the_report_and_leaves_it_in_a_folder(files, tmp_path, capsys):
    code, out, err = run(
        capsys, files / "one.safetensors", files / "people", "-o", tmp_path / "new" / "out", "--far", "0.1", "0.05"
    )
    assert code == 0
    assert "recommended thresholds" in out
    content = json.loads((tmp_path / "new" / "out" / "report.json").read_text())
    assert content["figures"]["TAR@FAR=5e-2"]["count"] == 60
    left = sorted(path.name for path in (tmp_path / "new" / "out").iterdir())
    page = "report.html was not written" not in err  # the command warns if it cannot draw pages
    assert left == (["report.html", "report.json"] if page else ["report.json"])


def test_json_for_machines_with_everything(files, capsys):
    code, out, _ = run(
        capsys,
        *(files / "one.safetensors", files / "people", "--against", files / "two.safetensors"),
        *("--cohort", files / "strangers", "--top", "6", "--per-template", "2", "--json", "--far", "0.1"),
    )
    assert code == 0
    content = json.loads(out)
    assert content["facts"]["images per template"] == 2
    assert content["facts"]["cohort"]["top"] == 6
    assert "EER: first minus second" in content["figures"]


def test_reranking_and_prefixes(files, capsys):
    words = (files / "one.safetensors", files / "people", "--rerank", "--prefix", "2", "8", "--json", "--far", "0.1")
    code, out, _ = run(capsys, *words, "--no-baselines")
    assert code == 0
    figures = json.loads(out)["figures"]
    assert figures["re-ranked mAP"]["count"] == figures["mAP"]["count"]
    assert figures["first 2 dimensions: EER"]["value"] > figures["first 8 dimensions: EER"]["value"]
    code, _, err = run(capsys, *words[:2], "--prefix", "4096", "--no-baselines")
    assert code == 1
    assert "prefixes must be at most the dimension of the features" in err
    code, _, err = run(capsys, files / "one.safetensors", files / "pairs.txt", "--rerank")
    assert code == 1
    assert "--rerank cannot be used with a list of pairs" in err


def test_a_list_of_pairs(files, capsys):
    code, out, _ = run(capsys, files / "one.safetensors", files / "pairs.txt", "--far", "0.5", "--score", "QMagFace")
    assert code == 0
    assert out.startswith("verification of listed pairs")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing", "people"], "there is no embedder nothing"),
        (["one.safetensors", "absent"], "there is no file or folder"),
        (["one.safetensors", "pairs.txt", "--fpir", "0.1"], "--fpir cannot be used with a list of pairs"),
        (["one.safetensors", "people", "--images", "people"], "images does not belong to a folder"),
        (["one.safetensors", "people", "-o", "pairs.txt"], "--output must be a folder, got the file"),
        (["one.safetensors", "people/person1"], "put the files of each identity into a sub-folder"),
        (["one.safetensors", "people", "--split", "test"], "split must be one of none"),
        (["pairs.txt", "people"], "is not a safetensors file, or is damaged"),
    ],
)
def test_a_bad_input_is_one_sentence(files, monkeypatch, capsys, words, message):
    monkeypatch.chdir(files)
    code, out, err = run(capsys, *words)
    assert (code, out) == (1, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_as_a_user_types_it(files):
    done = typed("evaluate", "one.safetensors", "people", "--far", "0.1", "--json", cwd=files)
    assert json.loads(done.stdout)["recommended thresholds"]["unit"] == "cosine"
