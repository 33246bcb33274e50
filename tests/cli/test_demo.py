from hypersphere.cli import main as cli


def test_the_demo_prints_true_angles_beside_ours(capsys):
    assert cli.main(["demo"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert len(rows) == 7
    for true, _, ours in rows[:5]:
        assert abs(float(ours) / float(true) - 1) < 1e-3
