import shutil
import time

import pytest

from hypersphere.recognition.service.page import load_page
from tests.recognition.service.people import HOSTILE, calibrate, embedder, picture
from tests.recognition.service.server import Server

WAIT = 60  # seconds until a working page has answered, even on a busy machine


def test_the_page_is_whole_and_loads_nothing_from_elsewhere():
    content, headers = load_page()
    assert "innerHTML" not in content
    assert "'unsafe" not in headers["Content-Security-Policy"]
    assert "://" not in content


def test_the_page_comes_with_its_policy(client):
    answer = client.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


@pytest.fixture
def browser():
    selenium = pytest.importorskip("selenium.webdriver", reason="the browser test needs: pip install selenium")
    program, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    if not program or not driver:
        pytest.skip("the browser test needs Chromium: apt install chromium chromium-driver")
    options = selenium.ChromeOptions()
    options.binary_location = program
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--no-proxy-server",
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        "--window-size=1280,900",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = selenium.Chrome(options, selenium.ChromeService(driver))
    yield made
    made.quit()


def by_id(browser, name):
    return browser.find_element("id", name)


def until(condition):
    end = time.monotonic() + WAIT
    while not (found := condition()):
        assert time.monotonic() < end, "the page did not get there"
        time.sleep(0.05)
    return found


def test_who_is_this_in_a_browser(browser, tmp_path):
    """A visitor enrolls, recognizes, tries a stranger, the camera and a hostile name, and removes a person."""
    for name, content in (
        ("ada", picture(0, size=64)),
        ("again", picture(0, 7, "JPEG", 64)),
        ("zoe", picture(3, size=64)),
    ):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "text").write_text("no picture")
    with Server(tmp_path) as server:
        browser.get(server.address)
        until(lambda: "Nobody yet" in by_id(browser, "persons").text)
        assert not by_id(browser, "add").is_enabled()
        by_id(browser, "file").send_keys(str(tmp_path / "ada"))
        until(lambda: "the gallery is empty" in by_id(browser, "message").text)
        enrol(browser, "ada")
        until(lambda: by_id(browser, "persons").text.split("\n")[:2] == ["ada", "1 template"])
        calibrate(server.gallery, embedder())

        by_id(browser, "file").send_keys(str(tmp_path / "again"))
        until(lambda: by_id(browser, "who").text == "ada")
        assert by_id(browser, "score").text.startswith("Score 0.9")
        assert "threshold 0.9" in by_id(browser, "score").text
        drop(browser, picture(3, size=64))
        until(lambda: by_id(browser, "who").text == "Unknown")

        enrol(browser, HOSTILE)
        until(lambda: by_id(browser, "who").text == HOSTILE)
        until(lambda: HOSTILE in by_id(browser, "persons").text)
        assert browser.find_elements("css selector", "#persons img, #candidates img, #who img") == []
        assert browser.title == "Who is this?"
        for width in (1280, 390):
            browser.set_window_size(width, 900)
            wide = "return document.documentElement.scrollWidth <= window.innerWidth"
            assert browser.execute_script(wide)
            browser.save_screenshot(str(tmp_path / f"{width}.png"))

        by_id(browser, "camera").click()
        until(lambda: browser.execute_script("return document.getElementById('video').videoWidth") > 0)
        before = by_id(browser, "preview").get_attribute("src")
        by_id(browser, "shoot").click()
        until(lambda: by_id(browser, "preview").get_attribute("src") != before)
        until(lambda: by_id(browser, "score").text.startswith("Score"))
        assert not by_id(browser, "video").is_displayed()

        by_id(browser, "file").send_keys(str(tmp_path / "text"))
        until(lambda: "must be an image" in by_id(browser, "message").text)
        until(lambda: not by_id(browser, "preview").is_displayed())
        buttons = {one.accessible_name: one for one in browser.find_elements("css selector", "#persons button")}
        assert buttons.keys() == {"Remove ada", f"Remove {HOSTILE}"}
        buttons[f"Remove {HOSTILE}"].click()
        browser.switch_to.alert.accept()
        until(lambda: by_id(browser, "persons").text.split("\n")[0] == "ada")
        assert HOSTILE not in by_id(browser, "persons").text
        # Chromium itself logs every status of 400 and above. Errors of the page look different.
        logged = [entry["message"] for entry in browser.get_log("browser")]
        assert [line for line in logged if "the server responded with a status of" not in line] == []


def test_a_key_is_asked_for(browser, tmp_path):
    key = "a-key-of-some-length"
    with Server(tmp_path, HYPERSPHERE_KEYS=key) as server:
        assert server.how == "with keys"
        browser.get(server.address)
        until(lambda: by_id(browser, "key").is_displayed())
        by_id(browser, "key").send_keys("wrong-key-of-some-length\n")
        until(lambda: "a key is needed" in by_id(browser, "message").text)
        by_id(browser, "key").send_keys(f"{key}\n")
        until(lambda: "Nobody yet" in by_id(browser, "persons").text)
        assert not by_id(browser, "key").is_displayed()


def enrol(browser, name):
    by_id(browser, "name").send_keys(name + "\n")


def drop(browser, content):
    """Drop a file on the page, as with a mouse."""
    browser.execute_script(
        """
        const transfer = new DataTransfer();
        transfer.items.add(new File([new Uint8Array(arguments[0])], "dropped.png", { type: "image/png" }));
        const there = document.getElementById("drop");
        for (const kind of ["dragenter", "dragover", "drop"])
          there.dispatchEvent(new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true }));
        """,
        list(content),
    )
