"""A browser for the tests of pages. Without one they are skipped, and the message says how to install it."""

import shutil
import time

import pytest

# Spheres are drawn in software here, so they are small.
SMALL = """
document.addEventListener('DOMContentLoaded', () => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync('.sphere .plot { width: 240px !important; height: 200px !important; }');
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
});
"""
WAIT = 180  # seconds in which a working page answers even on a busy machine
INSTALL = "apt-get install chromium chromium-driver, and pip install selenium"


def open_browser(width=1280, height=700, dark=False):
    """Return a headless Chromium of this size that draws WebGL in software and records the console."""
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
    browser.set_script_timeout(WAIT)  # the default of 30 s is too short on a busy machine
    browser.set_page_load_timeout(WAIT)
    resize(browser, width, height)
    emulate(browser, dark)
    return browser


def resize(browser, width, height):
    """Set the size of the visible area."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def until(browser, script, *arguments, seconds=WAIT):
    """Repeat a script until it returns a true value, and return the value. Fail after ``seconds``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = browser.execute_script(script, *arguments)
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"nothing came of {script!r}; the console says {browser.get_log('browser')}")


def open_page(browser, path):
    """Open a page and wait until all charts are drawn. A page that is already open is not loaded again."""
    address = path.resolve().as_uri()
    if browser.current_url != address:
        browser.get(address)
    for figure in browser.find_elements("css selector", "figure[data-chart]"):
        browser.execute_script("arguments[0].scrollIntoView({behavior: 'instant'})", figure)
        until(browser, "return arguments[0].dataset.drawn === 'true'", figure)


def emulate(browser, dark):
    """Set the light or dark theme of the system, and disable motion."""
    colours = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    still = {"name": "prefers-reduced-motion", "value": "reduce"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [colours, still]})
