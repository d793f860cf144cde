"""Ids: what may be one, wherever it comes from, and which of them look alike."""

import sys
import unicodedata
import warnings

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.data.csv_rows import read_texts
from convexmarket.deal import price_offers
from convexmarket.errors import ConfusableIdsWarning, DataError, ParameterError, SellersError
from convexmarket.ids import checked_id, forms_of, warn_of_lookalikes

PRIOR = cm.Uniform(0, 1)
#: Latin, and with a Cyrillic a.
PAIR = ["patient", "p\u0430tient"]


def alike(ids):
    """Return what is warned of in a list of ids."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_lookalikes(ids)
    assert len(caught) <= 1
    return str(caught[0].message) if caught else ""


# ------------------------------------------------------------------ what may be an id


@pytest.mark.parametrize(
    ("id", "why"),
    [
        ("Ann\u200b", r"ids\[1\] 'Ann\\u200b' holds '\\u200b', which cannot be seen"),
        ("\u202eAnn", "cannot be seen"),
        ("A\x1b[31m", "cannot be seen"),
        ("Ann\nBob", "cannot be seen"),
        ("Ann\u3164", "cannot be seen"),
        ("Ann\ue000", "cannot be seen"),
        ("Ann\u00a0Lee", "looks like a blank; write a blank"),
        ("Ann ", "begins or ends with a blank"),
        ("", r"ids\[1\] '' has 0 characters"),
        ("a" * 201, "has 201 characters"),
    ],
)
def test_sellers_have_ids_that_can_be_seen(id, why):
    reports = pd.Series([0.1, 0.6], index=["Bob", id])
    for make in (
        lambda: cm.Sellers([0.1, 0.6], PRIOR, ids=["Bob", id]),
        lambda: cm.Sellers(virtual_costs=[0.1, 0.6], ids=("Bob", id)),
        lambda: cm.Sellers(reports, PRIOR),
        lambda: cm.price(reports.to_frame("ask"), ask="ask", prior=PRIOR, objective=cm.Spread()),
    ):
        with pytest.raises(SellersError, match=why):
            make()


@pytest.mark.parametrize(
    "ids", [[1, 2], [("a\u200b", 1), ("b", 2)], ["1", 1], ["Zo\u00eb", "Zoe\u0308 2"], ["a b", 2.5]]
)
def test_ids_stay_as_they_were_given(ids):
    assert cm.Sellers([0.1, 0.6], PRIOR, ids=ids).ids == tuple(ids)


def test_two_forms_of_one_text_are_one_id():
    ids = ["Zo\u00eb", "Zoe\u0308"]
    with pytest.raises(SellersError, match="stands for more than one seller"):
        cm.Sellers([0.1, 0.6], PRIOR, ids=ids)
    with pytest.raises(DataError, match=r"row 2: .* is the id of an earlier seller"):
        price_offers(pd.DataFrame({"id": ids, "ask": 0.5}), PRIOR, mu=1, sigma=1, gamma=1)


def test_a_table_of_reports_has_ids_that_can_be_seen():
    reports = pd.DataFrame({"id": ["Ann", "B\u200bob"], "ask": 0.5})
    with pytest.raises(DataError, match=r"row 2: id 'B\\u200bob' holds '\\u200b'"):
        price_offers(reports, PRIOR, mu=1, sigma=1, gamma=1)


@given(st.lists(st.text(max_size=5) | st.integers() | st.just("x" * 201), max_size=6))
def test_a_list_is_checked_as_its_ids_are_one_by_one(ids):
    def one_by_one():
        return [checked_id(id) if isinstance(id, str) else id for id in ids]

    try:
        expected = one_by_one()
    except ParameterError:
        with pytest.raises(ParameterError):
            forms_of(ids)
    else:
        assert list(forms_of(ids)) == expected


def test_what_is_not_printable_is_what_cannot_be_seen():
    """Python's notion is that of the categories of Unicode, but for the blank."""
    unfit = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}
    for code in (*range(0x3000), *range(0xD7F0, 0xE010), *range(0xFE00, 0x10010), sys.maxunicode):
        unseen = unicodedata.category(chr(code)) in unfit and chr(code) != " "
        assert chr(code).isprintable() != unseen, hex(code)


# ------------------------------------------------------------------ ids that look alike


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("patient", "p\u0430tient"),
        ("\u0410\u041d\u041d\u0410", "AHHA"),
        ("\u039d\u0399\u039a\u039f", "NIKO"),
        ("\u03c1\u03bf", "\u0440\u043e"),
        ("\uff21nn", "Ann"),
        ("\U0001d400nn", "Ann"),
        ("O'Neil", "O\u2019Neil"),
        ("A-1", "A\u20131"),
        ("No\u00ebl", "No\u0451l"),
        ("\u0417-7", "3-7"),
    ],
)
def test_ids_that_look_alike(one, other):
    for ids in ([one, "x", other], [other, one]):
        assert "looks like" in alike(ids), ids


@pytest.mark.parametrize(
    "ids",
    [
        [],
        [1, 2, 3],
        ["A1", "AI", "Al", "al", "O0", "00", "OO"],
        ["A1", "AI", "Al", "al", "O0", "M\u00fcller", "m\u00fcller", "Muller"],
        [
            "\u0410\u043d\u043d\u0430",
            "\u0430\u043d\u043d\u0430",
            "Anna",
            "\u0418\u0432\u0430\u043d",
        ],
        ["\u0392", "\u03b2", "\u00df", "b", "ss"],
        ["s\u0131n\u0131r", "sinir"],
        ["\u5c71\u7530", "\u5c71\u672c"],
        ["p\u0430tient", "p\u0430tient", "q"],
    ],
)
def test_no_false_alarm(ids):
    assert not alike(ids)


def test_a_pair_is_named_once_by_position_and_in_escaped_form():
    ids = [3, "Bob", "patient", ("t", 1), "B\u043eb", "p\u0430tient"]
    assert alike(ids).startswith(r"ids[4] 'B\u043eb' looks like ids[1] 'Bob', and they count as")


def test_lookalikes_are_told_wherever_ids_come_from(tmp_path):
    path = tmp_path / "list.csv"
    path.write_text(f"id,c,epsilon,price\nZoe,0.1,1,1\n{PAIR[0]},0.2,1,1\n\n{PAIR[1]},0.3,1,1\n")
    ids = read_texts(path)["id"].tolist()
    table = pd.DataFrame({"id": ids, "c": [0.1, 0.2, 0.3]})
    ledger = cm.Ledger.create(tmp_path / "ledger")
    by_place = r"ids\[2\] 'p\\u0430tient' looks like ids\[1\] 'patient'"
    for say, expected in (
        (lambda: ledger.sell(ids, 1.0, 1.0), by_place),
        (lambda: cm.Sellers(table["c"].to_numpy(), PRIOR, ids=ids), by_place),
        (lambda: cm.Sellers(table.set_index("id")["c"], PRIOR), by_place),
    ):
        with pytest.warns(ConfusableIdsWarning, match=expected) as told:
            say()
        assert len(told) == 1
    ledger.disconnect()
