import json

import pytest
import torch

from hypersphere.training import Choice, Run


def test_a_run_is_read_from_its_folder(fitted):
    run, _ = fitted
    again = Run(run.folder)
    assert again.metrics == json.loads(json.dumps(again.report.numbers()))
    assert all(isinstance(choice, Choice) for choice in again.choices)
    assert again.check["images"] == 72
    assert again.embedder(torch.zeros(2, 1, 16, 16, dtype=torch.uint8)).shape == (2, 16)
    assert repr(again) == f"Run({str(run.folder)!r})"


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no finished fit: there is no report.json in it"):
        Run(tmp_path)
