import torch

from hypersphere.recognition import check_labels
from hypersphere.report import write_label_review
from tests.recognition.test_grouping import CALIBRATION, people

HOSTILE = "<script>document.title='taken'</script>"


def test_the_page_shows_findings_as_text(tmp_path):
    features, truth = people(5, 5, noise=0.3)
    labels = [HOSTILE if i == 1 else str(i) for i in truth.tolist()]
    labels[0] = HOSTILE
    report = check_labels(features, labels, [f"{i}.png" for i in range(25)], CALIBRATION)
    pictures = torch.randint(0, 256, (25, 3, 12, 12), dtype=torch.uint8)
    text = write_label_review(report, tmp_path / "review.html", "people", lambda i: pictures[i]).read_text()
    assert "0.png" in text
    assert HOSTILE not in text
    assert "data:image/" in text
    without = write_label_review(report, tmp_path / "plain.html", "people").read_text()
    assert "0.png" in without
