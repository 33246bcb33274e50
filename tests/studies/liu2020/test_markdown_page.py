import pytest

from studies.liu2020 import Effect, Estimate, markdown_page
from studies.liu2020.arms import convert_to_json
from studies.liu2020.rows import make_trial

from .test_report import claim, rows


def test_a_section_has_everything_and_its_numbers_come_from_the_rows():
    text = markdown_page.format_claim(claim(), rows(), "tiny.png")
    for part in (
        "**Claim.** Heads differ.",
        "**Verdict: holds.** Because.",
        "- table 0.1, accuracy (%): softmax: 90.0; margin: N/C",
        "| a | accuracy (%) | seeds |",
        "| softmax | 51.00 ± 0.58 | 3 |",
        "| margin | 61.10 ± 0.64 | 3 |",
        "![Curves.](tiny.png)",
        "- everything is smaller",
        "| margin above softmax | 61.10 ± 0.64 against 51.00 ± 0.58 | +10.10 ± 0.25 (± 2.39) | 95 against 90 | holds |",
        "| not nothing | 51.00 ± 0.58 against 1 | +50.0 ± 2.5 (± 2.5) |  | holds |",
        "`head.m`: 2 (–)",
        "6 runs, 6 CPU minutes, 1 thread(s), 2026-01-02, hypersphere 0.1.0.",
    ):
        assert part in text
    assert "**Verdict: holds in part.**" in markdown_page.format_claim(claim(), rows(gap=0.0))
    assert "No runs are recorded." in markdown_page.format_claim(claim(), [])


def tried(arm, factor, score, **changes):
    """Return a row of a tuning trial on the validation set, with the arm's current settings."""
    choice = {"lr": factor}
    setting = convert_to_json(make_trial(claim(), claim().arms("laptop")[arm], choice).list_settings())
    return {"arm": arm, "choice": choice, "score": score, "setting": {**setting, **changes}}


def test_what_was_chosen_is_shown_with_all_that_was_tried_and_edges_are_marked():
    chosen = [{**row, "choice": {"lr": 2.0 if row["arm"] == "b/margin" else 1.0}} for row in rows()]
    tuning = [
        tried(arm, factor, score)
        for arm in ("a/softmax", "b/margin")
        for factor, score in ((0.5, 10.0), (1.0, None), (2.0, 30.0))
    ]
    text = markdown_page.format_claim(
        claim(), chosen, tuning=[*tuning, {"arm": "a/softmax", "entry": "lr × 1", "score": 1.0}]
    )
    assert "| a/softmax | lr × 1 | lr × 0.5: 10; lr × 1: diverged; lr × 2: 30 | no |" in text
    assert "| b/margin | lr × 2 | lr × 0.5: 10; lr × 1: diverged; lr × 2: 30 | lr |" in text


@pytest.mark.parametrize(
    ("error", "text"),
    [(0.0123, "5.000 ± 0.012"), (12.3, "5 ± 12"), (0.0, "5.0000 ± 0.0000"), (3e-6, "5 ± 3e-06"), (float("nan"), "5")],
)
def test_numbers_have_as_many_digits_as_their_error(error, text):
    assert markdown_page.format_estimate(Estimate(5.0, error, 3)) == text


def test_a_difference_has_a_sign_and_nothing_is_said_of_nothing():
    assert markdown_page.format_effect(Effect(-1.5, 3.0, 0.5, 0.75, 3)) == "-1.50 ± 0.50 (± 0.75)"
    assert markdown_page.format_effect(None) == ""


def test_lemmas_and_figures_are_no_tables():
    from studies.liu2020 import Published

    told = [
        markdown_page._format_published(Published(where, "x", {"a": 1}))
        for where in ("A.1", "5.7", "figure 5.4", "lemma 1, 2")
    ]
    assert told == ["- table A.1, x: a: 1", "- table 5.7, x: a: 1", "- figure 5.4, x: a: 1", "- lemma 1, 2, x: a: 1"]


def test_what_was_tried_again_is_shown_once_the_last_and_what_was_tried_under_another_setting_is_not():
    chosen = [{**row, "choice": {"lr": 1.0}} for row in rows()]
    tuning = [tried("a/softmax", lr, score) for lr, score in ((0.5, 1.0), (1.0, 2.0), (0.5, 3.0))]
    tuning += [tried("a/softmax", 2.0, 4.0, steps=77), tried("a/softmax", 0.5, 5.0, batch_size=3)]
    assert "| lr × 0.5: 3; lr × 1: 2 |" in markdown_page.format_claim(claim(), chosen, tuning=tuning)
    assert "| lr × 1 | chosen with earlier settings of the claim |" in markdown_page.format_claim(
        claim(), chosen, tuning=tuning[3:]
    )


def test_pilots_are_shown_with_what_was_changed_and_count_for_no_check():
    one = {**rows()[0], "arm": "a/softmax", "changes": ["steps=8"], "metrics": {"accuracy": 12.5}}
    none = {**one, "arm": "b/margin", "changes": [], "metrics": {}}
    text = markdown_page.format_claim(claim(), [], pilots=[one, none])
    assert "| changed settings | arm | accuracy (%) |" in text
    assert "| steps=8 | a/softmax | 12.5 |" in text
    assert "| as it is | b/margin | – |" in text
    assert "**Verdict: not measured.**" in text
    assert "**Pilots.**" not in markdown_page.format_claim(claim(), rows())
