"""Ids are validated. Accounts, ledgers and markets compare ids in a normal form."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.checks import checked_id, forms_of
from convexmarket.errors import BudgetExceededError, DataError, ParameterError, SellersError
from convexmarket.privacy import Guarantee, PrivacyAccountant, account
from tests.lists import price_list

PRIOR = cm.Uniform(0, 1)


# ------------------------------------------------------------------ valid ids


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("Ann\u200b", r"ids\[1\] 'Ann\\u200b' contains '\\u200b', which is not printable"),
        ("\u202eAnn", "is not printable"),
        ("A\x1b[31m", "is not printable"),
        ("Ann\nBob", "is not printable"),
        ("Ann\ue000", "is not printable"),
        ("Ann\u00a0Lee", "is not printable"),
        ("Ann ", "begins or ends with a blank"),
        ("", r"ids\[1\] '' has 0 characters"),
        ("a" * 201, "has 201 characters"),
        (2.5, "must be text or a whole number"),
        (float("nan"), "must be text or a whole number"),
        (True, "must be text or a whole number"),
        (("Ann", 1), "must be text or a whole number"),
        (1 << 64, "a number of 65 bits"),
    ],
)
def test_ids_of_sellers_must_be_visible(id, message):
    reports = pd.Series([0.1, 0.6], index=["Bob", id])
    for make in (
        lambda: cm.Sellers([0.1, 0.6], PRIOR, ids=["Bob", id]),
        lambda: cm.Sellers(virtual_costs=[0.1, 0.6], ids=("Bob", id)),
        lambda: cm.Sellers(reports, PRIOR),
    ):
        with pytest.raises(SellersError, match=message):
            make()
    with pytest.raises(DataError, match=r"row 2: .*id"):
        cm.price(reports.to_frame("ask"), prior=PRIOR, objective=cm.Spread(), gamma=1)


def test_equivalent_forms_of_a_text_are_the_same_id():
    ids = ["Zo\u00eb", "Zoe\u0308"]
    with pytest.raises(SellersError, match="belongs to more than one seller"):
        cm.Sellers([0.1, 0.6], PRIOR, ids=ids)
    with pytest.raises(DataError, match=r"row 2: .* is the id of an earlier seller"):
        price_list(pd.DataFrame({"id": ids, "ask": 0.5}), PRIOR, mu=1, sigma=1, gamma=1)


@given(st.lists(st.text(max_size=5) | st.integers() | st.just("x" * 201), max_size=6))
def test_checking_a_list_equals_checking_each_id(ids):
    def one_by_one():
        return [checked_id(id) for id in ids]

    try:
        expected = one_by_one()
    except ParameterError:
        with pytest.raises(ParameterError):
            forms_of(ids)
    else:
        assert forms_of(ids) == expected


# ------------------------------------------------------------------ spellings of an id

#: Pairs of lists that contain equal ids in different spellings.
SPELLINGS = {
    "numbers and text": ([11, 12], ["11", "12"]),
    "numbers of NumPy and text": (np.array([11, 12]), ["11", "12"]),
    "whole numbers as floats": (np.array([11, 12]), [11.0, 12.0]),
    "floats and text": ([11.0, 12.0], ["11", "12"]),
    "NFC and NFD": (["Zo\u00eb", "\u00c5sa"], ["Zoe\u0308", "A\u030asa"]),
    "text of NumPy": (np.array(["Ann", "Bob"]), ["Ann", "Bob"]),
    "categories": (pd.Categorical([11, 12]), pd.Categorical(["11", "12"])),
}


@pytest.fixture(params=SPELLINGS)
def spellings(request):
    return SPELLINGS[request.param]


def ridge():
    return cm.PersonalizedRidge(feature_range=(0.0, 1.0), target_range=(0.0, 1.0))


def fit(index, epsilon=1.0, values=(0.2, 0.7)):
    table = pd.DataFrame({"age": values}, index=index)
    return ridge().fit(table, np.array(values), epsilon=epsilon)


def test_budgets_match_any_spelling_of_the_index(spellings):
    first, second = spellings
    with account(budget=pd.Series([1.0, 0.5], index=first)):
        fit(second, epsilon=[1.0, 0.5])
        with pytest.raises(BudgetExceededError):
            fit(first, epsilon=0.1)


def test_a_permuted_index_spends_an_account_once():
    """The account recognises a row although its index and its position have changed."""
    table = pd.DataFrame({"age": [0.2, 0.7, 0.4]})
    backwards = table.iloc[::-1].reset_index(drop=True)
    with account(budget=1.0):
        ridge().fit(table.iloc[[2, 0, 1]], np.zeros(3), epsilon=[0.0, 1.0, 0.0])
        with pytest.raises(BudgetExceededError):
            ridge().fit(backwards.iloc[[2, 0, 1]], np.zeros(3), epsilon=[1.0, 0.0, 0.0])


def test_a_permuted_table_of_names_spends_an_account_once(spellings):
    first, second = spellings
    with account(budget=1.0) as opened:
        fit(first, epsilon=[1.0, 0.25])
        fit(second[::-1], epsilon=[0.75, 0.0])
        with pytest.raises(BudgetExceededError):
            fit(second[::-1], epsilon=[0.0, 0.1])
    assert np.all((opened.spent > 0.95) & (opened.spent <= 1.0))


def test_repeated_ids_are_refused_in_any_spelling(spellings):
    first, second = spellings
    ids = [*first, *second]
    with pytest.raises(SellersError, match="belongs to more than one seller"):
        PrivacyAccountant(np.ones(4), ids=ids)
    with pytest.raises(SellersError, match="belongs to more than one seller"):
        account(budget=pd.Series(np.ones(4), index=pd.Index(ids, dtype=object)))
    with pytest.raises(SellersError, match="belongs to more than one seller"):
        cm.Sellers(np.full(4, 0.5), PRIOR, ids=ids)
    table = pd.DataFrame({"id": pd.Series(ids, dtype=object), "ask": 0.5})
    with pytest.raises(DataError, match=r"row 3: .* is the id of an earlier seller"):
        price_list(table, PRIOR, mu=1, sigma=1, gamma=1)


def test_a_ledger_matches_any_spelling_of_an_id(tmp_path, spellings):
    first, second = spellings
    with cm.Ledger.create(tmp_path / "ledger") as ledger:
        ledger.sell(list(first), 1.0, 0.5)
        ledger.account(list(second)).charge(Guarantee(np.ones(2), 0.0, "a model", "tight", ()))
        another = Guarantee(np.full(2, 0.1), 0.0, "a model", "tight", ())
        with pytest.raises(BudgetExceededError):
            ledger.account(list(first)).charge(another)
        assert ledger.balance()["id"].tolist() == forms_of(list(first))
        with pytest.raises(ParameterError, match="ids must be distinct"):
            ledger.account([*first, *second])


def test_an_online_market_matches_any_spelling_of_an_id(tmp_path, spellings):
    policy = cm.OnlinePolicy(PRIOR, 10, mu=1, sigma=1, gamma=1, cap=2)
    with cm.OnlineMarket.create(tmp_path / "market", policy) as market:
        for first, second in zip(*spellings, strict=True):
            assert market.quote(first, 0.1) == market.quote(second, 0.1)
            assert market.accept(second) == market.quote(first, 0.1)
        assert market.counts()["quoted"] == 2
