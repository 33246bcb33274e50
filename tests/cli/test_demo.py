from hypersphere.cli import main as cli


def test_the_demo_prints_a_table_and_says_where_the_pictures_are(tmp_path, capsys):
    assert cli.main(["demo", "--epochs", "1", "-o", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for head in ("softmax", "SphereFace", "CosFace", "ArcFace"):
        assert head in out
    assert (tmp_path / "features.png").exists()


def test_a_wrong_number_of_epochs_is_an_error(tmp_path, capsys):
    assert cli.main(["demo", "--epochs", "0", "-o", str(tmp_path)]) == 1
    assert "epochs must be an integer ≥ 1" in capsys.readouterr().err
