"""The page in headless Chromium: it loads from disk, alone, fits the window, and does as told."""

from __future__ import annotations

import json
import re
import shutil
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as MatplotlibFigure

from convexmarket.lab import build_report, write_report
from convexmarket.lab.kinds.tradeoff.problem import ClassificationTradeoff
from convexmarket.lab.kinds.tradeoff.run import run_tradeoff
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.report.index import write_index
from convexmarket.lab.report.model import Figure, Report, Section, Table
from convexmarket.lab.result import Result
from tests.lab.report.builders import table

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


PROBLEM = """
kind = "tradeoff"
title = "A small market <b>for tests</b>"
[data]
source = "synthetic"
n_sellers = 30
n_features = 2
n_validation = 20
n_test = 20
[prior]
family = "uniform"
low = 0.02
high = 0.10
[sellers]
scenarios = ["independent", "correlated"]
[objective]
gamma = [0.001, 0.1]
mu = [1.0]
sigma = [30.0]
[learner]
regularization = [0.05]
draws = 2
[naive]
eta_range = [5.0, 50.0]
grid = 1
[run]
jobs = 1
"""


@pytest.fixture(scope="module")
def result() -> Result[ClassificationTradeoff]:
    return run_tradeoff(parse_problem(PROBLEM))


@pytest.fixture(scope="module")
def page(result: Result[ClassificationTradeoff], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(result, tmp_path_factory.mktemp("browser") / "report")


def draw_two_lines() -> MatplotlibFigure:
    figure = MatplotlibFigure(figsize=(4, 2))
    axes = figure.subplots()
    for position in range(2):
        axes.plot([1, 2, 3], [position, 1, 2])
    return figure


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with a figure and a table of ten rows."""
    payments = [3.0, 1_000_000.0, np.nan, -2.0, 1e-9, 20.0, 0.5, 1234.5, np.inf, 7.0]
    table = Table(
        "offers",
        "Ten offers",
        pd.DataFrame({"seller": [f"s{i}" for i in range(10)], "payment": payments}),
    )
    figures = (Figure("lines", "Two lines.", draw_two_lines, "Two lines."),)
    report = Report(
        "Made up", ("A page.",), (Section("All", figures=figures, tables=(table,)),), {}
    )
    return write_report(report, tmp_path_factory.mktemp("made-up") / "report")


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


def test_shows_what_the_report_holds(
    browser: Any, page: Path, result: Result[ClassificationTradeoff]
) -> None:
    open_page(browser, page)
    assert browser.title == "A small market <b>for tests</b>"
    drawn = browser.find_elements(By.CSS_SELECTOR, ".drawing > svg")
    assert len(drawn) == len(list((page.parent / "figures").glob("*.png"))) == 7
    for figure in drawn:
        assert figure.size["width"] > 300
        assert figure.size["height"] > 150
    assert len(browser.find_elements(By.TAG_NAME, "table")) == len(build_report(result).tables)


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
        return ['p', 'a', 'figcaption', 'th', 'td', '.facts dt', '.facts dd', 'footer',
                '.drawing text'].map(
            selector => {
                const element = document.querySelector('main ' + selector)
                    || document.querySelector(selector);
                const style = getComputedStyle(element);
                const front = element.closest('svg') ? style.fill : style.color;
                const pair = [front, behind(element)].map(luminance);
                return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
            });
        """
    )
    assert min(ratios) >= 4.5


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


# ------------------------------------------------------------------------- what the script does


def column(browser: Any, number: int) -> list[str]:
    """Return the shown cells of a column of the first table."""
    return browser.execute_script(
        """
        const rows = [...document.querySelectorAll('.table tbody tr')];
        return rows.filter(row => !row.hidden).map(row => row.cells[arguments[0]].textContent);
        """,
        number,
    )


def test_a_header_sorts_numbers_as_numbers(browser: Any, made_up: Path) -> None:
    open_page(browser, made_up)
    head = browser.find_elements(By.CSS_SELECTOR, ".table th")[1]
    assert head.get_attribute("aria-sort") is None
    head.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "ascending"
    rising = ["s3", "s4", "s6", "s0", "s9", "s5", "s7", "s1", "s8", "s2"]
    assert column(browser, 0) == rising
    head.find_element(By.TAG_NAME, "button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert column(browser, 0) == [*rising[-2::-1], "s2"]  # what is missing stays at the end
    head.find_element(By.TAG_NAME, "button").click()
    assert head.get_attribute("aria-sort") is None
    assert column(browser, 0) == [f"s{i}" for i in range(10)]


def test_a_filter_hides_rows_and_says_how_many(browser: Any, made_up: Path) -> None:
    open_page(browser, made_up)
    box = browser.find_element(By.CSS_SELECTOR, "input[type=search]")
    status = browser.find_element(By.CSS_SELECTOR, ".controls [role=status]")
    assert status.text == "10 rows"
    box.send_keys("S 20")
    assert column(browser, 0) == ["s5"]
    assert status.text == "1 of 10 rows"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    printed = browser.find_elements(By.CSS_SELECTOR, ".table tbody tr")
    assert all(row.is_displayed() for row in printed)
    assert not box.is_displayed()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    box.clear()
    box.send_keys("nobody")
    assert column(browser, 0) == []


def test_a_shortened_table_has_no_filter_and_says_where_its_rows_are(
    browser: Any, page: Path, result: Result[ClassificationTradeoff]
) -> None:
    n_rows = len(table(build_report(result), "sellers"))
    open_page(browser, page)
    assert not browser.find_elements(By.CSS_SELECTOR, "#table-sellers .controls")
    n_shown = len(browser.find_elements(By.CSS_SELECTOR, "#table-sellers tbody tr"))
    said = browser.find_element(By.CSS_SELECTOR, "#table-sellers .files").text
    assert said.startswith(f"The first {n_shown} of {n_rows:,} rows; all of them: convexmarket")


def test_a_link_to_a_folded_table_opens_it(browser: Any, page: Path) -> None:
    open_page(browser, page)
    folded = browser.find_element(By.ID, "table-certificates")
    assert not folded.find_element(By.TAG_NAME, "table").is_displayed()
    browser.find_element(By.CSS_SELECTOR, 'a[href="#table-certificates"]').click()
    assert folded.find_element(By.TAG_NAME, "table").is_displayed()


def test_numbers_stay_on_one_line_in_print(browser: Any, tmp_path: Path) -> None:
    columns = {f"column {i}": [-1.5e-7] for i in range(20)}
    tables = [
        Table("wide", "Wide", pd.DataFrame(columns), formats=dict.fromkeys(columns, ".1e")),
        Table("narrow", "Narrow", pd.DataFrame({"one": [1.0]})),
    ]
    report = Report("Print", (), (Section("All", tables=tuple(tables)),), {})
    open_page(browser, write_report(report, tmp_path / "report"), 680)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    lines = browser.execute_script(
        """
        return [...document.querySelectorAll('td')].map(cell => {
            const range = document.createRange();
            range.selectNodeContents(cell);
            return range.getClientRects().length;
        });
        """
    )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert lines == [1] * 21
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"]
    boxes = re.findall(rb"/MediaBox ?\[0 0 ([\d.]+) ([\d.]+)\]", b64decode(printed))
    assert {float(width) > float(height) for width, height in boxes} == {True, False}


@pytest.mark.parametrize("width", WIDTHS)
def test_the_interactive_page_fits_and_is_quiet(browser: Any, made_up: Path, width: int) -> None:
    browser.get_log("performance")
    browser.get_log("browser")
    open_page(browser, made_up, width)
    for element in browser.find_elements(By.CSS_SELECTOR, "th button"):
        browser.execute_script("arguments[0].dispatchEvent(new Event('click'))", element)
    root = "document.documentElement"
    assert browser.execute_script(f"return {root}.scrollWidth - {root}.clientWidth") <= 0
    assert requests(browser) == [made_up.as_uri()]
    assert browser.get_log("browser") == []


def test_no_other_script_runs(browser: Any, page: Path, tmp_path: Path) -> None:
    evil = page.read_text(encoding="utf-8").replace(
        "</main>", "<script>document.title = 'run'</script><img src='x' onerror='title=1'></main>"
    )
    copy = tmp_path / "evil.html"
    copy.write_text(evil, encoding="utf-8")
    open_page(browser, copy)
    assert browser.title == "A small market <b>for tests</b>"
    refused = [entry["message"] for entry in browser.get_log("browser")]
    assert any("Content Security Policy" in message for message in refused)


@pytest.fixture(scope="module")
def index(result: Result[ClassificationTradeoff], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    for number in range(9):
        problem = result.problem.model_copy(update={"title": f"Market-{number}"})
        report = build_report(replace(result, problem=problem))
        write_report(replace(report, sections=()), folder / f"r {number}")
    return write_index(folder)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_index_leads_to_the_reports(browser: Any, index: Path, width: int) -> None:
    browser.get_log("browser")
    open_page(browser, index, width)
    root = "document.documentElement"
    assert browser.execute_script(f"return {root}.scrollWidth - {root}.clientWidth") <= 0
    browser.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("market-7")
    links = browser.find_elements(By.CSS_SELECTOR, ".table a")
    (link,) = [link for link in links if link.is_displayed()]
    assert browser.get_log("browser") == []
    link.click()
    assert browser.title == "Market-7"
