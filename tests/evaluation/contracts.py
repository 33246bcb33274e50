"""What every report must be; a new one inherits this and gives an instance."""

import json


class ReportContract:
    def test_prints_a_table_with_every_number(self, report):
        lines = str(report).splitlines()
        assert lines[0] == report.title
        assert len(lines) == 1 + len(report.numbers())
        assert repr(report) == str(report)

    def test_json_is_strict_and_complete(self, report):
        def refuse(constant):
            raise AssertionError(f"{constant} is not JSON")

        values = json.loads(report.json(), parse_constant=refuse)
        assert list(values) == ["report", *report.numbers()]

    def test_plots_on_its_own_and_on_given_axes(self, report, tmp_path):
        figure, axes = report.plot()
        assert axes.figure is figure
        figure.savefig(tmp_path / "report.png")
        assert (tmp_path / "report.png").stat().st_size > 1000
        assert report.plot(axes) == (figure, axes)
