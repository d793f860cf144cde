"""The page in headless Chromium: it loads from disk, alone, and fits the window."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convexmarket.experiments.tradeoff import TradeoffResult
from convexmarket.report import write_report

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.common.exceptions import WebDriverException  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDTHS = (1280, 400)


@pytest.fixture(scope="module")
def page(tradeoff_result: TradeoffResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(tradeoff_result, tmp_path_factory.mktemp("browser") / "report")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no Chromium with its chromedriver on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    try:
        chrome = webdriver.Chrome(options=options, service=Service(driver))
    except WebDriverException as error:
        pytest.skip(f"the browser does not start: {error.msg}")
    yield chrome
    chrome.quit()


def open_page(browser: Any, page: Path, width: int = 1280, scheme: str = "light") -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(page.as_uri())


def requests(browser: Any) -> list[str]:
    """Return the addresses that the page asked for since the log was last read."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]


def test_loads_from_disk_without_errors_and_without_a_network(browser: Any, page: Path) -> None:
    browser.get_log("performance")
    browser.get_log("browser")
    open_page(browser, page)
    asked = [url for url in requests(browser) if not url.startswith("data:")]
    assert asked == [page.as_uri()]
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert browser.get_log("browser") == []


def test_shows_what_the_report_holds(browser: Any, page: Path) -> None:
    open_page(browser, page)
    assert browser.title == "A small market <b>for tests</b>"
    drawn = browser.find_elements(By.CSS_SELECTOR, ".drawing > svg")
    assert len(drawn) == len(list((page.parent / "figures").glob("*.svg"))) == 5
    for figure in drawn:
        assert figure.size["width"] > 300
        assert figure.size["height"] > 150
    assert len(browser.find_elements(By.TAG_NAME, "table")) == len(
        list((page.parent / "tables").glob("*.csv"))
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_fits_the_window(browser: Any, page: Path, width: int) -> None:
    open_page(browser, page, width)
    overflow, sticking_out = browser.execute_script(
        """
        const root = document.documentElement;
        const out = [...document.querySelectorAll('body *')].filter(element =>
            !element.closest('.scroll, .card, .skip')
            && element.getBoundingClientRect().right > root.clientWidth + 1);
        return [root.scrollWidth - root.clientWidth, out.map(element => element.outerHTML)];
        """
    )
    assert overflow <= 0
    assert sticking_out == []


def test_wide_tables_scroll_by_keyboard(browser: Any, page: Path) -> None:
    open_page(browser, page, 400)
    moved = browser.execute_script(
        """
        const box = document.querySelector('#table-sellers .scroll');
        box.focus();
        box.scrollLeft = 50;
        return [document.activeElement === box, box.scrollLeft];
        """
    )
    assert moved == [True, 50]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_color_schemes(browser: Any, page: Path, scheme: str) -> None:
    open_page(browser, page, scheme=scheme)
    ratios = browser.execute_script(
        """
        const channel = value => value <= 0.04045 ? value / 12.92
            : Math.pow((value + 0.055) / 1.055, 2.4);
        const luminance = color => {
            const [r, g, b] = color.match(/[0-9.]+/g).slice(0, 3).map(v => channel(v / 255));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const behind = element => {
            for (let e = element; e; e = e.parentElement) {
                const color = getComputedStyle(e).backgroundColor;
                if (color !== 'rgba(0, 0, 0, 0)') return color;
            }
            return 'rgb(255, 255, 255)';
        };
        return ['p', 'a', 'figcaption', 'th', 'td', '.facts dt', '.facts dd', 'footer'].map(
            selector => {
                const element = document.querySelector('main ' + selector)
                    || document.querySelector(selector);
                const pair = [getComputedStyle(element).color, behind(element)].map(luminance);
                return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
            });
        """
    )
    assert min(ratios) >= 4.5
    card = browser.execute_script(
        "return getComputedStyle(document.querySelector('.card')).backgroundColor"
    )
    assert card == "rgb(255, 255, 255)"  # what figures are drawn for


def test_prints_on_a_sheet_of_paper(browser: Any, page: Path) -> None:
    open_page(browser, page, 680)  # A4 between the margins of the style sheet
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    overflow = browser.execute_script(
        "const root = document.documentElement; return root.scrollWidth - root.clientWidth"
    )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert overflow <= 0
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    assert printed["data"].startswith("JVBER")  # %PDF
