"""Pages in a real browser: they draw, respond to mouse and keys, fit a phone, and escape names.

A browser that draws in software takes seconds per page. Therefore only the tests of one page always run; the others are
marked slow.
"""

import pytest
import torch

from hypersphere import report
from hypersphere.energy.checkpoint_report import energy_report
from hypersphere.evaluation import verification
from tests.report.browser import emulate, open_browser, open_page, resize, until
from tests.report.runs_for_tests import HOSTILE, evidence, write_run

MARKS = """
const marks = {};
for (const figure of document.querySelectorAll('figure[data-chart]')) {
  const plot = figure.querySelector('.plot');
  const points = plot.data.filter(t => t.hoverinfo !== 'skip').map(t => (t.x || t.y || []).length);
  const shapes = plot.querySelectorAll('.point, .js-line, .lines path, .bars path, .box, canvas').length;
  marks[figure.id] = [Math.max(0, ...points), shapes, plot.getAttribute('aria-label')];
}
return marks;
"""


@pytest.fixture(scope="module")
def browser():
    opened = open_browser()
    yield opened
    opened.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Write four pages: one run with hostile names, two runs, an evaluation, and energies."""
    root = tmp_path_factory.mktemp("pages")
    choices = [{"key": name, "value": name, "reason": name} for name in HOSTILE]
    weights = {"conv.angular.log_k": torch.randn(6), "conv.magnitude.radius.log_rho": torch.randn(6)}
    one = write_run(root / "<b>hostile", kept=evidence(HOSTILE, dim=5), choices=choices, weights=weights)
    a, b = write_run(root / "a"), write_run(root / "b", seed=1, kept=evidence(spread=0.5))
    state = {"conv.weight": torch.randn(8, 3, 3, 3), "<i>fc</i>.weight": torch.randn(10, 8)}
    kept = evidence()
    scores = torch.rand(200)
    checked = verification(scores, torch.arange(200) % 2 == 0)
    return {
        "hostile": report.write_page(one),
        "two": report.write_page([a, b], root / "two.html"),
        "energy": report.write_energy(energy_report(state), root / "energy.html", title=HOSTILE[0], command="x"),
        "evaluation": report.write_evaluation(
            [checked],
            root / "evaluation.html",
            evidence=kept,
            facts={"data": HOSTILE[1]},
            command="hypersphere evaluate",
        ),
    }


@pytest.mark.parametrize(
    "name", ["hostile", *(pytest.param(name, marks=pytest.mark.slow) for name in ("two", "energy", "evaluation"))]
)
def test_every_chart_has_marks_and_the_console_is_quiet(browser, pages, name):
    open_page(browser, pages[name])
    marks = browser.execute_script(MARKS)
    assert marks
    for key, (points, shapes, label) in marks.items():
        assert points > 0, key
        assert shapes > 0, key
        assert label, key
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert browser.execute_script("return document.getElementById('page-problem').hidden")
    assert pages[name].stat().st_size < 5_000_000


def test_names_are_text(browser, pages):
    open_page(browser, pages["hostile"])
    assert browser.execute_script("return window.pwned") is None
    body = browser.execute_script("return document.body.textContent")
    for name in (HOSTILE[0], HOSTILE[1], HOSTILE[2], HOSTILE[4]):
        assert name in body
    assert browser.execute_script("return document.querySelector('h1').textContent") == "<b>hostile"
    assert (
        browser.execute_script("return document.querySelectorAll('main b, main img, main a[href^=javascript]').length")
        == 0
    )
    label = browser.execute_script(
        "return document.querySelector('#sphere-0 .plot').layout.scene.annotations.map(a => a.text)"
    )
    assert all("<" not in text for text in label)


def test_classes_are_switched_by_keys_and_a_point_shows_its_picture(browser, pages):
    open_page(browser, pages["hostile"])
    visible = (
        "return document.querySelector('#sphere-0 .plot').data"
        ".filter(t => t.mode === 'markers' && t.visible !== false).length"
    )
    assert browser.execute_script(visible) == len(HOSTILE)
    box = browser.find_elements("css selector", "#sphere-0 fieldset input")[1]
    box.send_keys(" ")
    until(browser, f"{visible} === {len(HOSTILE) - 1}")
    none = browser.find_element("xpath", "//figure[@id='sphere-0']//button[text()='No class']")
    none.send_keys("\n")
    until(browser, f"{visible} === 0")
    browser.find_element("xpath", "//figure[@id='sphere-0']//button[text()='All classes']").click()
    until(browser, f"{visible} === {len(HOSTILE)}")
    browser.execute_script(
        "const plot = document.querySelector('#sphere-0 .plot');"
        "plot.emit('plotly_hover', {points: [{customdata: 12}], event: {clientX: 300, clientY: 300}});"
    )
    tip = browser.find_element("id", "page-tip")
    assert HOSTILE[1] in tip.text
    tile = tip.find_element("class name", "tile")
    assert tile.is_displayed()
    assert "data:image/" in tile.value_of_css_property("background-image")
    assert tile.size["width"] == tile.size["height"] == 96


@pytest.mark.slow
def test_arrow_keys_turn_the_sphere_and_it_rotates_on_request(browser, pages):
    open_page(browser, pages["evaluation"])
    eye = "return document.querySelector('#sphere-0 .plot').layout.scene.camera.eye.x"
    before = browser.execute_script(eye)
    browser.find_element("css selector", "#sphere-0 .plot").send_keys("\ue014")
    until(browser, f"{eye} !== {before!r}")
    turned = browser.execute_script(eye)
    # The sphere does not rotate while it is off screen or under the pointer.
    browser.execute_script(
        "const plot = document.querySelector('#sphere-0 .plot'); plot.scrollIntoView({behavior: 'instant'});"
        "plot.dispatchEvent(new PointerEvent('pointerleave'));"
    )
    button = browser.find_element("xpath", "//figure[@id='sphere-0']//button[text()='Rotate']")
    button.send_keys("\n")
    until(browser, f"{eye} !== {turned!r}")


def test_threshold_moves_by_keys_and_by_its_line(browser, pages):
    open_page(browser, pages["hostile"])
    output = browser.find_element("css selector", "#angles-0 output")
    slider = browser.find_element("css selector", "#angles-0 input[type=range]")
    assert slider.get_attribute("aria-label")
    first = output.text
    slider.send_keys("\ue014")
    assert output.text != first
    browser.execute_script(
        "const plot = document.querySelector('#angles-0 .plot');"
        "Plotly.relayout(plot, {'shapes[0].x0': 180, 'shapes[0].x1': 180});"
    )
    until(browser, "return document.querySelector('#angles-0 output').textContent.includes('FAR 100 %')")
    assert "FRR 0.00 %" in output.text


@pytest.mark.slow
def test_theme_changes_the_colours_of_charts(browser, pages):
    open_page(browser, pages["two"])
    colour = "return document.querySelector('#training-loss .plot').data[0].line.color"
    light = browser.execute_script(colour)
    browser.find_element("id", "page-theme").click()
    until(browser, f"{colour} !== {light!r}")
    assert browser.execute_script("return document.documentElement.dataset.theme") == "dark"


@pytest.mark.slow
def test_numbers_are_a_table_and_everything_is_reachable(browser, pages):
    open_page(browser, pages["two"])
    browser.execute_script("document.querySelector('#training-loss .numbers').open = true")
    rows = until(browser, "return document.querySelectorAll('#training-loss .numbers tbody tr').length")
    assert rows == 42  # 21 rows for each of two runs
    unnamed = browser.execute_script(
        "return [...document.querySelectorAll('button, input, a, summary')].filter(e => !(e.textContent.trim() ||"
        " e.getAttribute('aria-label') || (e.labels && e.labels.length && e.labels[0].textContent.trim()))).length"
    )
    assert unnamed == 0
    assert browser.execute_script(
        "const ids = [...document.querySelectorAll('[id]')].filter(e => !e.closest('.plot')).map(e => e.id);"
        "return ids.length === new Set(ids).size"
    )


@pytest.mark.slow
def test_nothing_overflows_a_telephone_in_the_dark(browser, pages):
    resize(browser, 390, 700)
    emulate(browser, dark=True)
    try:
        browser.get("about:blank")
        open_page(browser, pages["hostile"])
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
        assert browser.execute_script("return document.documentElement.dataset.theme") == "dark"
    finally:
        resize(browser, 1280, 700)
        emulate(browser, dark=False)


def test_two_runs_show_what_differs_first(pages):
    text = pages["two"].read_text()
    first = text.index("What differs")
    assert first < text.index("head.m") < text.index("Measures at the end") < text.index('id="training"')
    assert "Equal error rate beside a, on the same pairs" in text


def test_a_run_without_features_has_a_page(tmp_path):
    run = write_run(tmp_path / "run")
    (run / "evidence.safetensors").unlink()
    text = report.write_page(run).read_text()
    assert 'id="training"' in text
    assert 'id="sphere"' not in text


def test_callback_writes_the_page(tmp_path):
    run = write_run(tmp_path / "run")

    class Folder:
        path = run
        recorded = ()

        def record(self, *names):
            self.recorded += names

    class Trainer:
        main = True
        folder = Folder()

    report.ReportPage().on_end(Trainer(), {})
    assert (run / "report.html").is_file()
    assert Trainer.folder.recorded == ("report.html",)


def test_no_run_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="at least one run folder"):
        report.write_page([])
    with pytest.raises(ValueError, match="holds no run"):
        report.write_page(tmp_path)


def test_all_charts_are_drawn_without_scrolling(browser, pages):
    """A printed page contains all charts, including those outside the viewport."""
    browser.get("about:blank")
    browser.get(pages["evaluation"].resolve().as_uri())
    until(browser, "return window.Plotly !== undefined && document.querySelectorAll('figure[data-drawn]').length > 0")
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    undrawn = "[...document.querySelectorAll('figure[data-chart]')].filter((f) => f.dataset.drawn !== 'true')"
    until(browser, f"return {undrawn}.length === 0")
    assert browser.execute_script("return document.querySelectorAll('.plot:empty').length") == 0
