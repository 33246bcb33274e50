from studies.liu2020.effects_picture import COLORS, draw_effects
from studies.liu2020.markdown_page import decide_outcomes
from studies.liu2020.rows import group_metrics

from .test_report import claim, rows


def lines(found):
    values = group_metrics(found)
    return [(check, outcome, check.compute_effect(values)) for check, outcome in decide_outcomes(claim(), values)]


def test_every_measured_check_is_a_line_with_its_interval_and_the_published_change():
    figure = draw_effects([(claim(), lines(rows())), (claim(), lines([]))])
    (ax,) = figure.axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["margin above softmax", "not nothing"]
    drawn = [line for line in ax.get_lines() if line.get_color() == COLORS["holds"]]
    low, high = drawn[0].get_xdata()
    assert 100 * (10.1 - 0.25) / 51 < (low + high) / 2 < 100 * (10.1 + 0.25) / 51
    (published,) = [line for line in ax.get_lines() if line.get_marker() == "D"]
    assert abs(published.get_xdata()[0] - 100 * 5 / 90) < 1e-9
    assert "2 of 2 checks measured" in ax.get_title(loc="left")


def test_nothing_measured_is_an_empty_picture():
    assert draw_effects([(claim(), lines([]))]).axes == []
