from PIL import Image

from hypersphere.recognition import Finding
from hypersphere.report.gallery_audit import write_audit


def test_findings_are_shown_with_their_pictures(tmp_path):
    for name, color in (("a.png", "red"), ("b.png", "blue")):
        Image.new("RGB", (40, 20), color).save(tmp_path / name)
    sources = [str(tmp_path / name) for name in ("a.png", "b.png", "gone.png")]
    findings = [
        Finding("outlier", "<ada>", 1, sources[0], 0.1, "bob", sources[1], "bob is nearer"),
        Finding("missing picture", "cem", 2, sources[2], None, "", "", "its picture is not there any more"),
    ]
    page = write_audit(findings, 9, "people.db", tmp_path / "audit.html").read_text()
    assert "&lt;ada&gt;: bob is nearer" in page
    assert "data:image/png;base64," in page
    assert "gone.png" in page
    assert "Nothing was found" not in page
    assert "Nothing was found" in write_audit([], 9, "people.db", tmp_path / "empty.html").read_text()
