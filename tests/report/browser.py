"""A real browser for the tests of pages; without one they are skipped, with the line that installs it."""

import shutil
import time

import pytest

# A sphere is drawn pixel by pixel by the processor here, so it is made small.
SMALL = """
document.addEventListener('DOMContentLoaded', () => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync('.sphere .plot { width: 240px !important; height: 200px !important; }');
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
});
"""
WAIT = 180  # seconds until a page that works has answered on a machine that is busy
INSTALL = "apt-get install chromium chromium-driver, and pip install selenium"


def open_browser(width=1280, height=700, dark=False):
    """A headless Chromium of this size that draws WebGL in software and keeps what pages say on the console."""
    webdriver = pytest.importorskip("selenium.webdriver", reason=f"a browser is needed: {INSTALL}")
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip(f"a browser is needed: {INSTALL}")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--enable-unsafe-swiftshader",
        "--use-gl=angle",
        "--use-angle=swiftshader",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": SMALL})
    browser.set_script_timeout(WAIT)  # 30 s are not enough where other work has the processors
    browser.set_page_load_timeout(WAIT)
    resize(browser, width, height)
    emulate(browser, dark)
    return browser


def resize(browser, width, height):
    """The size of what is seen, as if the screen had it."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def until(browser, script, *arguments, seconds=WAIT):
    """What the script returns as soon as it is something; the test fails when that takes too long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = browser.execute_script(script, *arguments)
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"nothing came of {script!r}; the console says {browser.get_log('browser')}")


def open_page(browser, path):
    """The page with all of its charts drawn; one that is open already stays as it is."""
    address = path.resolve().as_uri()
    if browser.current_url != address:
        browser.get(address)
    for figure in browser.find_elements("css selector", "figure[data-chart]"):
        browser.execute_script("arguments[0].scrollIntoView({behavior: 'instant'})", figure)
        until(browser, "return arguments[0].dataset.drawn === 'true'", figure)


def emulate(browser, dark):
    """Light or dark as the system's choice, and no motion."""
    colours = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    still = {"name": "prefers-reduced-motion", "value": "reduce"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [colours, still]})
