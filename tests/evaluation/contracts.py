"""Tests of all reports. The tests of a report inherit them and provide an instance."""

import json

OVER = ("identities", "independent trials")


class ReportContract:
    def test_prints_a_table_with_every_number(self, report):
        lines = str(report).splitlines()
        assert lines[0] == report.title
        assert len(lines) == 1 + len(report.numbers())
        assert repr(report) == str(report)

    def test_json_is_strict_and_complete(self, report):
        def refuse(constant):
            raise AssertionError(f"{constant} is not JSON")

        content = json.loads(report.json(), parse_constant=refuse)
        assert content["report"] == report.title
        assert list(content["figures"]) == list(report.numbers())
        for figure in report.figures():
            entry = content["figures"][figure.name]
            assert set(entry) == {"value", "unit", "interval", "interval over", "count"}
            assert entry["interval over"] in ((None,) if entry["interval"] is None else OVER)
            assert entry["unit"] == figure.unit

    def test_figures_are_named_once_and_lie_in_their_intervals(self, report):
        figures = report.figures()
        assert len({figure.name for figure in figures}) == len(figures)
        for figure in figures:
            assert (figure.low is None) == (figure.high is None)
            if figure.low is not None:
                assert figure.low <= figure.value <= figure.high
                assert figure.count is not None
            if figure.unit == "fraction":
                assert 0 <= figure.value <= 1

    def test_plots_on_its_own_and_on_given_axes(self, report, tmp_path):
        figure, axes = report.plot()
        assert axes.figure is figure
        figure.savefig(tmp_path / "report.png")
        assert (tmp_path / "report.png").stat().st_size > 1000
        assert report.plot(axes) == (figure, axes)
