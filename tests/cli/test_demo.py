"""Arguments and formats of ``hypersphere demo``. The output of a whole demo is tested in ``tests/cli/demo``."""

import torch

from hypersphere.cli import demo
from hypersphere.cli import main as cli
from hypersphere.evaluation import open_set_report
from hypersphere.geometry import uniform


def test_a_wrong_number_of_epochs_is_an_error(tmp_path, capsys):
    assert cli.main(["demo", "--epochs", "0", "-o", str(tmp_path)]) == 1
    assert "epochs must be an integer ≥ 1" in capsys.readouterr().err


def test_a_rate_is_written_with_its_interval():
    report = open_set_report(uniform(2, 8).repeat_interleave(10, 0), torch.arange(20) // 10)
    assert demo._format_percent(report.rank(1)).startswith("100.0 % [")
