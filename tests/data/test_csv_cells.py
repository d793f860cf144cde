"""Written CSV cells are not formulas in spreadsheets, and are read as the original text."""

import csv
import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.data.csv_cells import guarded, unguarded, write_csv
from convexmarket.data.csv_rows import read_texts
from tests.cli.builders import invoke
from tests.lists import price_list
from tests.online.builders import TRAINED_MARKET

SIGNS = "=+-@＝＋－＠\t\r"
#: Names that a malicious seller could choose to run code on the buyer's computer.
NASTY = [
    *(f"{sign}cmd|' /C calc'!A0" for sign in "=+-@＝＋－＠"),
    *(f"x{separator}{sign}1+1" for separator in ",;|" for sign in "=＝@"),
    'x";=1+1',
    'x;"=1+1',
    "x; =HYPERLINK(A1)",
    "'=1+1",
    "''=1+1",
    "+49 123;+1",
]
PLAIN = ["Ann", "O'Neil", "-5", "+4.5e-3", "a-b", "x;y", "'quoted'", "Zoë, 中", 'a"b']
DIALECTS = {"comma": ",", "semicolon": ";", "tab": "\t"}

texts = st.text(st.sampled_from(f"{SIGNS},;|'\" \nx1.e"), max_size=8) | st.text(max_size=8)


def is_formula(cell):
    """Check whether a spreadsheet could interpret a cell as a formula."""
    return cell.strip('" ').startswith(tuple(SIGNS))


def written(table):
    file = io.StringIO()
    write_csv(table, file)
    return file.getvalue()


def cells(text, separator):
    return [cell for row in csv.reader(io.StringIO(text), delimiter=separator) for cell in row]


@given(texts)
@example("=A1\r=A2")
@example("''=x;;'=y")
def test_text_is_read_back_unchanged_except_for_line_breaks(text):
    once = guarded(text)
    assert not set(once) & set("\t\n\v\f\r\x85\u2028\u2029")
    if not set(text) & set("\t\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"):
        assert unguarded(once) == text


@given(st.lists(texts, min_size=1, max_size=4))
@example(['x;"=1+1'])
@example(["a", "b\r\n=1+1"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_cells_are_not_formulas_in_any_dialect(dialect, names):
    table = pd.DataFrame({"number": 1.5, "=name": names, "after": names})
    for cell in cells(written(table), DIALECTS[dialect]):
        assert not is_formula(cell), (cell, written(table))
    assert all(len(row) == 3 for row in csv.reader(io.StringIO(written(table))))
    assert len(written(table).splitlines()) == len(table) + 1


def test_texts_are_quoted_and_numbers_are_not():
    table = pd.DataFrame(
        {
            "id": ["Ann", None, "Bob"],
            "x": [0.1, np.nan, np.inf],
            "n": [1, 2, 3],
            "yes": [True, False, True],
            "mixed": ["=A1", 2, ("a", "b")],
        }
    )
    assert written(table) == (
        '"id","x","n","yes","mixed"\n'
        '"Ann",0.1,1,"True","\'=A1"\n'
        ',,2,"False","2"\n'
        '"Bob",inf,3,"True","(\'a\', \'b\')"\n'
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "market.toml").write_text(TRAINED_MARKET.replace("= 8", "= 80"))
    (tmp_path / "rows.csv").write_text("id,one,two,label\nAnn,0.1,0.2,yes\n")
    ids = [*NASTY, *PLAIN]
    table = pd.DataFrame({"id": ids, "sensitivity": np.linspace(1.1, 4.9, len(ids))})
    with open(tmp_path / "sellers.csv", "w", newline="") as file:
        csv.writer(file).writerows([table.columns, *table.itertuples(index=False)])
    return tmp_path


def ids_in(path):
    """Check that a file contains no formulas, and return the ids that the package reads."""
    text = path.read_text()
    for separator in DIALECTS.values():
        assert not [cell for cell in cells(text, separator) if is_formula(cell)]
    return read_texts(path)["id"].tolist()


def test_offers_quotes_and_ledgers_keep_the_names(folder):
    """Malicious names remain unchanged in offers, a ledger, quotes and exported lists."""
    table = pd.read_csv("sellers.csv")
    price_list(table, cm.Uniform(1, 5), mu=1, sigma=100, gamma=0.001).write("offers.csv")
    assert ids_in(folder / "offers.csv") == [*NASTY, *PLAIN]
    cm.Ledger.create("sold.sqlite").disconnect()
    assert invoke("ledger", "sold.sqlite", "--record", "offers.csv").exit_code == 0
    done = invoke("ledger", "sold.sqlite", "--export", "balance.csv")
    assert done.exit_code == 0, done.output
    assert set(ids_in(folder / "balance.csv")) <= {*NASTY, *PLAIN}
    assert len(ids_in(folder / "balance.csv")) >= 10
    assert invoke("online", "open", "m", "market.toml").exit_code == 0
    quote = ["online", "quote", "m", "--csv", "offers.csv", "--out"]
    assert invoke(*quote, "quotes.csv").exit_code == 0
    assert ids_in(folder / "quotes.csv") == [*NASTY, *PLAIN]
    assert invoke("online", "quote", "m", "--csv", "quotes.csv", "--out", "q.csv").exit_code == 0
    assert (folder / "q.csv").read_bytes() == (folder / "quotes.csv").read_bytes()
