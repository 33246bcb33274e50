from studies.liu2020 import claim_pictures as pictures

from .test_report import rows


def test_features_of_each_arm_are_a_panel_and_missing_arms_are_left_out():
    points = {
        "features": [[1.0, 2.0], [0.0, -1.0], [3.0, 1.0]],
        "labels": [0, 1, 0],
        "neurons": [[1.0, 0.0], [0.0, 1.0]],
    }
    found = [{"arm": arm, "points": points} for arm in ("m = 2", "m = 1")]
    plain, rays = (pictures.make_planar_picture(["m = 1", "m = 2", "m = 3"], neurons=n)(found) for n in (False, True))
    assert [ax.get_title() for ax in plain.axes] == ["m = 1", "m = 2"]
    assert len(rays.axes[0].get_lines()) == len(plain.axes[0].get_lines()) + 2


def test_curves_are_means_over_seeds():
    figure = pictures.make_curve_picture(
        [("accuracy", "accuracy (%)", ["a/softmax", "b/margin", "nobody"]), ("energy", "energy", ["a/softmax"])]
    )(rows())
    lines = figure.axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["softmax", "margin"]
    assert lines[0].get_ydata().tolist() == [10.0, 30.0, 51.0]
    assert figure.axes[1].get_lines() == []


def test_bars_have_one_mark_an_arm():
    figure = pictures.make_bar_picture([("accuracy", "accuracy (%)"), ("nothing", "nothing")])(rows())
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["a/softmax", "b/margin"]
    assert (len(figure.axes[0].containers), len(figure.axes[1].containers)) == (2, 0)


def test_published_and_measured_numbers_are_in_one_order():
    found = [{"arm": "a", "metrics": {"error": value}} for value in (2.0, 4.0)]
    figure = pictures.make_comparison_picture(
        {"people": 4.5, "BPL": 2.5}, {"ours": "error", "other": "nothing"}, "error (%)"
    )(found)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["BPL", "ours", "people"]
    lines = [list(line.get_xdata()) for line in figure.axes[0].get_lines()]
    assert lines == [[], [2.5], [2.0, 4.0], [3.0], [], [4.5]]
