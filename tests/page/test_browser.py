"""Test report pages in headless Chromium: loading from disk, layout and interaction."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.report import figures, write_index

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.common.exceptions import WebDriverException  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

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
WIDTHS = (1280, 390)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a report with a wide table, numbers of all sizes, a figure and hostile names."""
    report = cm.Report("A small market <b>for tests</b>", question="Which?")
    report.headline("One is better than the other.")
    report.add("Text with a [link](results.json).")
    values = [20.0, 1e7, np.inf, -3.0, 2.5e-9, 2000.0, 1e-12, 12345.6, 1e20, np.nan]
    frame = pd.DataFrame({"name": [f"s{i}" for i in range(10)], "value": values})
    wide = {f"column {i}": -1.5e-7 for i in range(40)}
    report.add(frame.assign(**wide), "Numbers <i>", name="numbers", rows=10)
    points = pd.DataFrame({"x": [1.0, 2.0, 4.0], "y": [1.0, 0.5, 0.2], "who": ["<b>", "c", "c"]})
    report.add(figures.lines(points, "x", "y", hue="who"), alt="A falling line", name="line")
    report.claim("It <i>holds</i>", holds=True)
    return report.write(tmp_path_factory.mktemp("browser") / "report")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("Chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    try:
        chrome = webdriver.Chrome(options=options, service=Service(driver))
    except WebDriverException as error:
        pytest.skip(f"the browser does not start: {error.msg}")
    chrome.get("about:blank")  # the first tab loads internal pages of the browser
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
    """Return the addresses that the page requested since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]


def overflow(browser: Any) -> int:
    root = "document.documentElement"
    return int(browser.execute_script(f"return {root}.scrollWidth - {root}.clientWidth"))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_loads_from_disk_without_errors_and_fits_the_window(
    browser: Any, page: Path, width: int
) -> None:
    browser.get_log("performance")
    browser.get_log("browser")
    open_page(browser, page, width)
    assert requests(browser) == [page.as_uri(), (page.parent / "figures/line.png").as_uri()]
    assert browser.get_log("browser") == []
    assert browser.title == "A small market <b>for tests</b>"
    assert overflow(browser) <= 0
    image = browser.find_element(By.TAG_NAME, "img")
    assert width > image.size["width"] > 0.7 * min(width, 900)
    assert image.get_property("naturalWidth") > 0
    assert len(browser.find_elements(By.TAG_NAME, "table")) == 2


def test_wide_tables_can_be_scrolled_by_keyboard(browser: Any, page: Path) -> None:
    open_page(browser, page, 400)
    moved = browser.execute_script(
        """
        const box = document.querySelector('.scroll');
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
        return ['p', 'a', '.finding', 'p:has(> img) + p', 'th', 'td', 'p:last-child'].map(
            selector => {
                const element = document.querySelector('main ' + selector)
                    || document.querySelector(selector);
                const style = getComputedStyle(element);
                const pair = [style.color, behind(element)].map(luminance);
                return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
            });
        """
    )
    assert min(ratios) >= 4.5


def column(browser: Any, number: int) -> list[str]:
    """Return the visible cells of a column of the first table."""
    return list(
        browser.execute_script(
            """
            const rows = [...document.querySelector('tbody').rows];
            return rows.filter(row => !row.hidden).map(row => row.cells[arguments[0]].textContent);
            """,
            number,
        )
    )


def test_a_header_sorts_numbers_numerically(browser: Any, page: Path) -> None:
    open_page(browser, page)
    head = browser.find_elements(By.CSS_SELECTOR, "th")[1]
    head.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "ascending"
    rising = ["s3", "s6", "s4", "s0", "s5", "s7", "s1", "s8", "s2", "s9"]
    assert column(browser, 0) == rising
    head.find_element(By.TAG_NAME, "button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert column(browser, 0) == [*rising[-2::-1], "s9"]  # missing numbers are always last


def test_a_filter_hides_rows(browser: Any, page: Path) -> None:
    open_page(browser, page)
    box = browser.find_element(By.CSS_SELECTOR, "input[type=search]")
    box.send_keys("S 20")
    assert column(browser, 0) == ["s0"]
    box.clear()
    box.send_keys("nobody")
    assert column(browser, 0) == []


def test_scripts_in_the_content_do_not_run(browser: Any, page: Path, tmp_path: Path) -> None:
    unsafe = page.read_text(encoding="utf-8").replace(
        "</main>", "<script>document.title = 'run'</script><img src='x' onerror='title=1'></main>"
    )
    copy = tmp_path / "unsafe.html"
    copy.write_text(unsafe, encoding="utf-8")
    open_page(browser, copy)
    assert browser.title == "A small market <b>for tests</b>"
    refused = [entry["message"] for entry in browser.get_log("browser")]
    assert any("Content Security Policy" in message for message in refused)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_index_links_to_the_reports(browser: Any, page: Path, width: int) -> None:
    index = write_index(page.parent.parent, force=True)
    open_page(browser, index, width)
    assert overflow(browser) <= 0
    assert "One is better than the other." in browser.find_element(By.TAG_NAME, "main").text
    browser.find_element(By.CSS_SELECTOR, "main a").click()
    assert browser.title == "A small market <b>for tests</b>"
