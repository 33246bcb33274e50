"""A page is one file that loads nothing. No text in it can close a script."""

import base64
import gzip
import json
import re

import pytest
import torch

from hypersphere.report import Chart, Grid, Note, Page, Section, render, save
from hypersphere.report._render import MAX_PAGE_BYTES, encode_for_script, read_plotting_library, round_numbers

PAGE = Page("title", "sub", [Section("one", "One", [Note("<script>alert(1)</script>"), Grid("g", ["a"], [["<b>"]])])])


def test_texts_are_escaped():
    text = render(PAGE)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<b>" not in text
    assert read_plotting_library() not in text  # a page without charts does not contain the library


def test_nothing_is_loaded():
    text = render(Page("t", "s", [Section("one", "One", [Chart("c", "caption", "summary", [{"y": [1.0]}])])]))
    head = text.partition('id="page-library"')[0]
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", head)
    assert not re.search(r"@import|url\((?!data:)", head)


def test_json_cannot_leave_its_script():
    hostile = {"</script><!--": "\u2028\u2029 & ' \"", "x": [float("nan"), float("inf"), torch.tensor([1.0, 2.0])]}
    text = encode_for_script(hostile)
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"</script><!--": "\u2028\u2029 & ' \"", "x": [None, None, [1.0, 2.0]]}


def test_numbers_have_six_digits():
    assert round_numbers([1 / 3, 10**12, True, None]) == [0.333333, 10**12, True, None]


def test_the_library_is_plotly_compressed():
    script = gzip.decompress(base64.b64decode(read_plotting_library())).decode()
    assert "Plotly" in script
    assert len(read_plotting_library()) < 0.5 * len(script)


def test_too_large_a_page_is_refused_and_nothing_is_written(tmp_path):
    large = Page("t", "s", [Section("one", "One", [Note("x" * MAX_PAGE_BYTES)])])
    with pytest.raises(ValueError, match="show fewer runs"):
        save(large, tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match="there is no folder"):
        save(PAGE, tmp_path / "no" / "page.html")
