"""Parts of a page are plain data. Names in charts are escaped."""

import pytest

from hypersphere.report.page_parts import Chart, arrange_charts, escape_markup, make_key


@pytest.mark.parametrize("count", range(1, 13))
def test_rows_are_full(count):
    width = {"third": 2, "half": 3, "full": 6}
    sizes = [width[chart.size] for chart in arrange_charts([Chart("x", "", "", [])] * count)]
    assert sum(sizes) % 6 == 0
    filled = 0
    for size in sizes:  # no chart crosses the end of its row
        assert filled % 6 + size <= 6
        filled += size


def test_no_chart_is_no_row():
    assert arrange_charts([]) == []


def test_tags_and_control_characters_are_characters():
    assert escape_markup("<a href='x'>&\u2028\x00") == "&lt;a href='x'&gt;&amp;  "


def test_keys_are_safe_anchors():
    assert make_key("energy", 'conv.1"> <x') == "energy-conv-1-x"
