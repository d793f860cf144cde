"""Test the accepted contents of reports, the written files and escaping."""

import math
import re
import stat
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from matplotlib.figure import Figure

import convexmarket as cm
from convexmarket.errors import DataError, ParameterError
from convexmarket.report import (
    escape_markdown,
    figures,
    printable,
    read_report,
    read_tables,
    write_index,
)

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "| a | b |",
    "# heading",
    "[x](javascript:alert(1))",
    "`code` *stress* _stress_ ~~gone~~",
    "\x1b[31mred\x00",
    "a\nb\r\nc",
    "$\\alpha$ & 5 % _",
    "&lt;b&gt;",
]
texts = st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
cells = {
    "float64": st.floats(),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "str": st.text(st.characters(exclude_categories=["Cs"])) | st.none(),
    "object": st.booleans() | st.integers() | st.floats(allow_nan=False) | st.none(),
}


@st.composite
def frames(draw):
    names = draw(st.lists(st.text("abc_é ", min_size=1), min_size=1, max_size=4, unique=True))
    n_rows = draw(st.integers(0, 6))
    columns = {}
    for name in names:
        dtype = draw(st.sampled_from(sorted(cells)))
        values = draw(st.lists(cells[dtype], min_size=n_rows, max_size=n_rows))
        columns[name] = pd.Series(values, dtype=dtype)
    return pd.DataFrame(columns)


class Page(HTMLParser):
    """Parser that collects the elements, attributes and text of a page."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.attributes, self.text = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text.append(data)


def figure():
    points = pd.DataFrame({"x": [1.0, 2.0, 4.0], "y": [1.0, 0.5, 0.25], "who": ["a", "b", "b"]})
    return figures.lines(points, "x", "y", hue="who", log="x")


def report_of(words):
    report = cm.Report(words, question=words)
    report.headline(words)
    report.add(pd.DataFrame({words: [words], "n": [1.0]}), caption=words)
    report.claim(words, holds=True, source=words, detail=words)
    return report


# ------------------------------------------------------------------------------ contents


def test_objects_are_added_with_statements_table_and_plot(tmp_path):
    class Result:
        def statements(self):
            return ["It is *bought*."]

        def to_frame(self):
            return pd.DataFrame({"eta": [1.0]})

        def plot(self, ax=None):
            from matplotlib import pyplot as plt

            _, ax = plt.subplots()
            ax.plot([1, 2])
            return ax

    report = cm.Report("Result")
    report.add(Result())
    assert [type(block).__name__ for block in report.blocks] == ["Text", "Figure", "Table"]
    assert "It is \\*bought\\*." in report.to_markdown()
    report.add(Result().plot(), "The same Axes")
    report.write(tmp_path / "out")
    for name in ("figure-1", "figure-2"):
        assert (tmp_path / f"out/figures/{name}.png").read_bytes().startswith(b"\x89PNG")


def test_series_aggregates_and_certificates_are_added_without_drawing_into_earlier_figures():
    from matplotlib import pyplot as plt

    report, (earlier, ax) = cm.Report("x"), plt.subplots()
    report.add(earlier, "Earlier")
    report.add(pd.Series([1.0, 2.0], name="paid"))
    report.add(SimpleNamespace(plot=pd.Series([1.0, 2.0]).plot))
    assert not ax.lines
    assert [len(figure.picture.axes[0].lines) for figure in report.figures] == [0, 1]
    report.add(pd.DataFrame({"g": [1, 1], "v": [1.0, 2.0]}).groupby("g").agg({"v": ["mean"]}))
    report.add(pd.Series([1.0, 2.0], index=["north", "south"], name="paid"))
    columns = [["paid"], ["g", "v mean"], ["index", "paid"]]
    assert [list(table.frame) for table in report.tables] == columns
    plt.close(earlier)
    market = cm.Market(cm.Sellers([1.0, 2.0], cm.Uniform(0, 3)), cm.Noise(), [cm.MaxEpsilon(2.0)])
    report.add(cm.allocate(market))
    text = report.blocks[-2].markdown
    assert text.startswith("- Certificate: objective 0.25; lower bound 0.25; gap ")
    assert text.endswith("method exact; n sellers 2; binding MaxEpsilon.")


@pytest.mark.parametrize("block", [1, None, [1], object(), pd.DataFrame])
def test_other_objects_are_refused_with_a_remedy(block):
    with pytest.raises(ParameterError, match="add a string, a DataFrame"):
        cm.Report("x").add(block)


@pytest.mark.parametrize("name", ["", "A", "a b", "../x", "a.png", "é", "-a", 3])
def test_invalid_file_names_are_refused(name):
    with pytest.raises(ParameterError, match="file name"):
        cm.Report("x").add(pd.DataFrame({"a": [1]}), name=name)


def test_invalid_names_keys_formats_and_attachments_are_refused():
    report, frame = cm.Report("x"), pd.DataFrame({"a": [1, 1], "b": [2, 3]})
    report.add(frame, name="points")
    with pytest.raises(ParameterError, match="two tables are named 'points'"):
        report.add(frame, name="points")
    with pytest.raises(ParameterError, match="no column 'c'"):
        report.add(frame, formats={"c": ".2f"})
    with pytest.raises(ParameterError, match="do not identify the rows"):
        report.add(frame, keys=["a"])
    with pytest.raises(ParameterError, match="two equal column names"):
        report.add(frame.set_axis(["a", "a"], axis=1))
    for options in ({"formats": "csv"}, {"formats": None}, {"folder": None}):
        with pytest.raises(ParameterError, match=f"{next(iter(options))} must be .*, got"):
            report.write(**{"folder": "out"} | options)
    with pytest.raises(ParameterError, match="folder must be the folder of a report, got 3"):
        read_report(3)
    with pytest.raises(ParameterError, match="'none' has no columns"):
        report.add(pd.DataFrame(), name="none")
    with pytest.raises(ParameterError, match="alt="):
        report.add(figure())
    for name in ("results.json", "../runs.jsonl", "x.html"):
        with pytest.raises(ParameterError, match="file name"):
            report.attach(name, "")
    for title in ("", "  ", None):
        with pytest.raises(ParameterError, match="title"):
            cm.Report(title)


# ------------------------------------------------------------------------------------ claims


@pytest.mark.parametrize(
    ("holds", "verdict", "detail"),
    [
        (True, "holds", "So."),
        (np.bool_(False), "does not hold", "So."),
        (None, "not tested", "So."),
        (np.array([False, False]), "does not hold", "So."),
        ([True, False, True], "holds in 2 of 3", "So."),
        (pd.Series([True, False], [0.1, 1.0]), "holds in 1 of 2", "So. Fails at 1.0."),
    ],
)
def test_a_verdict_is_computed_from_truth_values(holds, verdict, detail):
    report = cm.Report("x")
    report.claim("it falls", holds=holds, detail="So.")
    assert report.claims[["verdict", "detail"]].to_numpy().tolist() == [[verdict, detail]]


@pytest.mark.parametrize("holds", ["yes", 1, [1, 0], float("nan"), []])
def test_a_verdict_must_be_a_truth_value(holds):
    with pytest.raises(ParameterError, match="holds must be"):
        cm.Report("x").claim("it falls", holds=holds)


def test_all_claims_are_in_one_table_at_the_place_of_the_first_claim():
    report = cm.Report("x")
    report.claim("first", holds=True)
    report.add("text")
    report.claim("second", holds=False)
    assert report.tables[0].frame.claim.tolist() == ["first", "second"]
    assert report.blocks.index(report.tables[0]) == 0
    assert repr(report) == "Report('x': 2 blocks, 2 claims)"
    with pytest.raises(ParameterError, match="twice"):
        report.claim("second", holds=True)


# --------------------------------------------------------------------------------- escaping


@given(texts.filter(str.strip))
def test_text_from_data_is_escaped_in_html(words):
    report = report_of(words)
    plain = Page(report_of("plain").to_html())
    page = Page(report.to_html())
    assert page.elements == plain.elements
    assert len(page.attributes) == len(plain.attributes)


@given(texts)
@example("\x85")  # str.split treats this control character as a blank
def test_escaped_markdown_is_one_paragraph_with_the_same_text(words):
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(escape_markdown(words))
    assert set(Page(html).elements) <= {"p"}
    blanks = re.compile(r"[ \t\r\n\u2028\u2029]+")
    assert "".join(Page(html).text).split() == printable(blanks.sub(" ", words)).split()


def test_a_page_loads_no_external_resources_and_runs_only_its_script():
    page = report_of("x").to_html()
    assert "default-src 'none'" in page
    assert "script-src 'sha256-" in page
    assert "http:" not in page.replace("http-equiv", "")


# ------------------------------------------------------------------------------ files


@given(frames())
def test_tables_are_unchanged_by_a_round_trip(tmp_path_factory, frame):
    folder = tmp_path_factory.mktemp("reports") / "one"
    report = cm.Report("x", settings={"seed": 0, "bound": math.inf})
    report.add(frame, name="points")
    report.write(folder)
    (back,) = read_tables(folder).values()
    pd.testing.assert_frame_equal(back, report.tables[0].frame, check_exact=True)
    assert read_report(folder).to_html() == report.to_html()


def test_long_tables_are_unchanged_by_a_round_trip_through_parquet(tmp_path):
    values = np.random.default_rng(0).standard_normal(2_000)
    values[:2] = np.nan, -np.inf
    frame = pd.DataFrame({"id": [f"é{i}" for i in range(2_000)], "x": values, "ok": True})
    report = cm.Report("x")
    report.add(frame, name="points", keys=["id"])
    report.write(tmp_path / "one")
    pd.testing.assert_frame_equal(read_tables(tmp_path / "one")["points"], frame)
    assert "first 8 of 2,000 rows" in report.to_markdown()
    stored = tmp_path / "one/tables/points.parquet"
    stored.write_bytes(stored.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match="was changed"):
        read_report(tmp_path / "one")


def test_all_formats_and_the_appendix_are_written_in_one_folder(tmp_path):
    report = cm.Report("x")
    report.add(pd.DataFrame({"a_b": ["50 %"], "n": [1]}), caption="100 %", name="points")
    report.add(figure(), caption="Falling.", alt="A falling line.", name="fall")
    report.add(figure(), alt="The same.", name="again", appendix=True)
    report.attach("runs.jsonl", "{}\n")
    page = report.write(tmp_path / "r", formats=("csv", "tex", "svg", "pdf"))
    assert page == tmp_path / "r/index.html"
    written = {path.relative_to(tmp_path / "r").as_posix() for path in tmp_path.rglob("*.*")}
    figures_written = {f"figures/{n}.{k}" for n in ("fall", "again") for k in ("png", "svg", "pdf")}
    assert written == figures_written | {
        *("index.html", "report.md", "appendix.html", "appendix.md", "results.json"),
        *("tables/points.csv", "tables/points.tex", "runs.jsonl"),
    }
    assert "50 \\%" in (tmp_path / "r/tables/points.tex").read_text()
    assert "appendix.html" in (tmp_path / "r/index.html").read_text()
    back = read_report(tmp_path / "r")
    assert back.attachments == {"runs.jsonl": b"{}\n"}
    assert back.figures[0].saved("png") == (tmp_path / "r/figures/fall.png").read_bytes()
    with pytest.raises(ParameterError, match="PNG only"):
        back.figures[0].saved("svg")


@given(st.lists(st.sampled_from(["text", "table", "figure"]), max_size=14))
def test_a_page_has_at_most_400_words_3_figures_and_2_tables(kinds):
    report, expected = cm.Report("x"), {"page": [], "appendix": []}
    quota = {"text": 3, "table": 2, "figure": 3}  # texts of 120 words each
    for number, kind in enumerate(kinds):
        block = {"text": f"w{number} " + "word " * 119, "figure": Figure()}.get(kind)
        name = None if kind == "text" else f"b{number}"
        report.add(pd.DataFrame({"a": [1]}) if block is None else block, alt="A figure.", name=name)
        quota[kind] -= 1
        expected["page" if quota[kind] >= 0 else "appendix"].append(number)
    for place, numbers in expected.items():
        page = report.to_markdown(appendix=place == "appendix")
        shown = [
            n
            for n, kind in enumerate(kinds)
            if kind != "table" and re.search(rf"\b[wb]{n}\b", page)
        ]
        assert shown == [n for n in numbers if kinds[n] != "table"]
        assert page.count("| a |") == sum(kinds[n] == "table" for n in numbers)


def test_the_same_report_gives_the_same_files(tmp_path):
    for name in ("a", "b"):
        report = cm.Report("x")
        report.add(figure(), alt="A line.", name="line")
        report.add(pd.DataFrame({"x": [0.1]}))
        report.write(tmp_path / name, formats=("svg", "pdf"))
    files = sorted(path for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert files
    for path in files:
        other = tmp_path / "b" / path.relative_to(tmp_path / "a")
        assert path.read_bytes() == other.read_bytes(), path.name


def test_a_report_replaces_only_a_report(tmp_path):
    report, folder = cm.Report("first"), tmp_path / "r"
    report.write(folder)
    (folder / "old.txt").write_text("")
    cm.Report("second").write(folder)
    assert read_report(folder).title == "second"
    assert not (folder / "old.txt").exists()
    foreign = tmp_path / "photos"
    foreign.mkdir()
    report.write(foreign)
    for path in foreign.rglob("*"):
        path.unlink()
    (foreign / "cat.png").write_bytes(b"")
    (foreign / "results.json").write_text('{"mine": 1}')
    with pytest.raises(ParameterError, match="--force"):
        report.write(foreign)
    assert (foreign / "cat.png").exists()
    report.write(foreign, force=True)
    assert not (foreign / "cat.png").exists()
    with pytest.raises(ParameterError, match="is a file"):
        report.write(foreign / "results.json")


def test_a_failure_keeps_the_former_report(tmp_path, monkeypatch):
    cm.Report("first").write(tmp_path / "r")
    report = cm.Report("second")
    report.add(figure(), alt="A line.")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(DataError, match="No space left"):
        report.write(tmp_path / "r")
    assert read_report(tmp_path / "r").title == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_reports_about_single_sellers_are_readable_only_by_their_owner(tmp_path):
    for name, columns in (("a", ["id", "sensitivity"]), ("b", ["id"])):
        report = cm.Report("x")
        report.add(pd.DataFrame({column: [1.0] for column in columns}))
        report.write(tmp_path / name)
        modes = {stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / name).iterdir() if p.is_file()}
        assert all(mode & 0o077 == 0 for mode in modes) is (name == "a")
    assert read_report(tmp_path / "a").tables[0].private


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": "convexmarket-report/0"}', '{"format": "convexmarket-report/1"}'],
)
def test_damaged_results_are_refused_with_the_name_of_the_file(tmp_path, text):
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(DataError, match=r"results\.json"):
        read_report(tmp_path)


def test_names_in_results_cannot_leave_the_folder(tmp_path):
    report = cm.Report("x")
    report.add(figure(), alt="A line.", name="line")
    report.write(tmp_path / "r")
    results = tmp_path / "r/results.json"
    results.write_text(results.read_text().replace('"line"', '"../../secret"'))
    with pytest.raises(DataError, match="must be a file name"):
        read_report(tmp_path / "r")


# ------------------------------------------------------------------------------------- index


def test_the_index_contains_the_finding_of_each_report(tmp_path):
    for name in ("b", "a"):
        report = cm.Report(f"Title <{name}>", question="Why?")
        report.headline("A is 3 % better than B.")
        report.write(tmp_path / name)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/results.json").write_text("{")
    page = Page(write_index(tmp_path).read_text())
    links = [value for name, value in page.attributes if name == "href"]
    assert links == ["a/index.html", "b/index.html", "broken/index.html"]
    readme = (tmp_path / "README.md").read_text()
    assert "](<a/report.md>): A is 3 % better than B." in readme
    assert "cannot be read" in readme
    with pytest.raises(ParameterError, match="--force"):
        write_index(tmp_path)
    with pytest.raises(ParameterError, match="not a folder of reports"):
        write_index(tmp_path / "a")
