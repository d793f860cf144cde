"""Test the sales, charges, errors and messages of a ledger."""

import math
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import convexmarket as cm
from convexmarket.errors import (
    BudgetExceededError,
    DataError,
    NotSupportedError,
    ParameterError,
    ReleaseChargedError,
)
from convexmarket.privacy import Guarantee, PrivacyAccountant

IDS = ["Ann", "Bob", "Cyd"]


def guarantee(epsilon, delta=0.0, mechanism="a model"):
    return Guarantee(np.atleast_1d(epsilon), delta, mechanism, "tight", ("one thing", "another"))


@pytest.fixture
def ledger(tmp_path):
    with cm.Ledger.create(tmp_path / "sold.sqlite") as made:
        made.sell(IDS, [1.0, 2.0, 0.5], [0.3, 0.7, 0.1])
        yield made


def balance(ledger):
    return ledger.balance().set_index("id")


# ------------------------------------------------------------------ sales


@pytest.mark.parametrize(
    ("ids", "epsilon", "prices", "words"),
    [
        (["a", "b"], [1.0, -0.1], 0.0, r"epsilon of seller 'b' must .*finite.*, got -0\.1"),
        (["a", "b"], [1.0, 1.0], [0.0, math.inf], "prices of seller 'b' must .*, got inf"),
        (["a", "b"], [math.nan, 1.0], 0.0, "epsilon of seller 'a' must .*, got nan"),
        (["a", "b"], [1.0, 1.0], [1e101, 0.0], "prices of seller 'a' must .*, got 1e"),
        (["a", "b"], [1.0], 0.0, r"epsilon has shape \(1,\), but there are 2 ids"),
        (["a", "b"], ["1", "2"], 0.0, "epsilon must hold numbers"),
        (["a", "b"], True, 0.0, "epsilon must hold numbers"),
        ("ab", [1.0, 1.0], 0.0, "ids must be .*a sequence.*, got 'ab'"),
        (3, 1.0, 0.0, "ids must be .*a sequence.*, got 3"),
        (["a", ""], 1.0, 0.0, r"ids\[1\] '' has 0 characters"),
        (["a", "b\u202e"], 1.0, 0.0, "is not printable"),
        (["a", 5.5], 1.0, 0.0, "must be text or a whole number.*, got 5.5"),
    ],
)
def test_invalid_sales_record_nothing(ledger, ids, epsilon, prices, words):
    with pytest.raises(ParameterError, match=words):
        ledger.sell(ids, epsilon, prices)
    assert len(ledger.sales()) == 3


def test_ids_in_another_order_are_refused(ledger):
    shares = pd.Series([1.0, 2.0, 3.0], index=["Cyd", "Bob", "Ann"])
    with pytest.raises(ParameterError, match="labels of epsilon are not the ids"):
        ledger.sell(IDS, shares, 0.1)
    ledger.sell(["Dan"], 1.0, 0.1)
    for ids, rows in ((IDS, None), (["Bob", "Cyd", "Dan"], None), (["Dan", *IDS], [1, 2, 3])):
        options = {"epsilon": 1e-3, "rows": rows, "accountant": ledger.account(ids)}
        with pytest.raises(ParameterError, match="labels of the rows are not the ids"):
            cm.PrivateLogisticRegression().fit(shares.to_frame() / 9, [-1, 1, 1], **options)
    assert not ledger.charges().size


def test_a_source_is_recorded_once(ledger):
    ledger.sell(["Ann"], 1.0, 1.0, source="list 7")
    with pytest.raises(DataError, match=r"sales of the source 'list 7' were recorded on 20.*twice"):
        ledger.sell(["Dan"], 1.0, 1.0, source="list 7")
    ledger.sell(["Dan"], 1.0, 1.0, source=("list 8", None, "list 9"))
    with pytest.raises(DataError, match="sales of the source 'list 9' were recorded"):
        ledger.sell(["Dan"], 1.0, 1.0, source="list 9")
    ledger.sell(["Dan"], 1.0, 1.0, source="list 9", again=True)
    sources = ["list 7", "list 8\nlist 9", "list 9"]
    assert ledger.sales()["source"].tolist() == [None] * 3 + sources


# ------------------------------------------------------------------ charges


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([], "distinct and not empty"),
        (["a", "b", "a"], "must be distinct"),
        ("a", "a sequence"),
        (np.array("a"), "a sequence"),
        ([1.5], "must be text"),
    ],
)
def test_invalid_accounts_are_refused(ledger, ids, words):
    with pytest.raises(ParameterError, match=words):
        ledger.account(ids)


def test_a_release_name_is_charged_once(ledger):
    account = ledger.account(["Ann"], release="model")
    account.charge(guarantee([0.25]))
    for ask in (account.check, account.charge, ledger.account(["Bob"], release="model").charge):
        with pytest.raises(
            ReleaseChargedError, match=r"release 'model' was charged on 20.*another"
        ):
            ask(guarantee([0.25]))
    assert account.spent.tolist() == [0.25]
    account = ledger.account(["Ann"])  # each charge without a name is a separate release
    account.charge(guarantee([0.25]))
    account.charge(guarantee([0.25]))
    assert ledger.releases()["name"].tolist() == ["model", "unnamed-2", "unnamed-3"]


@pytest.mark.parametrize("name", ["unnamed-7", "market-model", "market-model-2", "", " x", 2.5])
def test_invalid_release_names_are_refused(ledger, name):
    for ask in (
        lambda: ledger.account(["Ann"], release=name),
        lambda: ledger.sell(["Ann"], 1.0, 1.0, release=name),
    ):
        with pytest.raises(ParameterError, match="release"):
            ask()


def test_a_sale_for_one_release_is_used_only_by_that_release(ledger):
    ledger.sell(["Ann"], [0.5], [0.2], release="x")
    assert ledger.account(["Ann"]).budget.tolist() == [1.0]
    assert ledger.account(["Ann"], release="y").budget.tolist() == [1.0]
    x = ledger.account(["Ann"], release="x")
    assert x.budget.tolist() == [1.5]
    assert balance(ledger).loc["Ann", "left"] == 1.5
    ledger.account(["Ann"], release="y").charge(guarantee([0.75]))
    assert x.remaining.tolist() == [0.75]
    # uses 0.5 of the sale for this release, and 0.125 of the sales for any release
    x.charge(guarantee([0.625]))
    assert ledger.account(["Ann"]).remaining.tolist() == [0.125]
    ann = balance(ledger).loc["Ann"]
    assert (ann["sold"], ann["spent"], ann["left"]) == (1.5, 1.375, 0.125)
    ledger.sell(["Cyd"], [0.5], [0.2], release="z")
    ledger.account(["Cyd"], release="z").charge(guarantee([0.25]))  # less than the sale
    assert balance(ledger).loc["Cyd", ["spent", "left"]].tolist() == [0.25, 0.5]
    with pytest.raises(
        ReleaseChargedError, match=r"'x' was charged .* sales for this name could not"
    ):
        ledger.sell(["Bob"], 1.0, 1.0, release="x")


# ------------------------------------------------------------------ compositions


def test_advanced_composition_agrees_with_the_accountant(tmp_path):
    ids = [f"s{k}" for k in range(5)]
    budget = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
    oracle = PrivacyAccountant(budget, 1e-5, composition="advanced")
    with cm.Ledger.create(tmp_path / "l", "advanced", 1e-5) as ledger:
        ledger.sell(ids, budget, 1.0)
        account = ledger.account(ids)
        rng, charged = np.random.default_rng(0), 0
        for _ in range(15):
            size = rng.uniform(0, 0.4, 5) * (rng.random(5) < 0.7)
            release = [guarantee(size, 1e-8), Guarantee.gaussian(size), Guarantee.laplace(size)][
                int(rng.integers(3))
            ]
            try:
                oracle.charge(release)
            except BudgetExceededError:
                with pytest.raises(BudgetExceededError):
                    account.charge(release)
            else:
                account.charge(release)
                charged += 1
            np.testing.assert_allclose(account.remaining, oracle.remaining, rtol=1e-9)
            np.testing.assert_allclose(account.spent, oracle.spent, rtol=1e-9)
        assert 0 < charged < 15
        np.testing.assert_allclose(ledger.balance()["left"], oracle.remaining, rtol=1e-9)
        np.testing.assert_allclose(ledger.balance()["spent"], oracle.spent, rtol=1e-9)
        with pytest.raises(NotSupportedError, match="need a ledger with basic composition"):
            ledger.sell(["s0"], 1.0, 1.0, release="x")
    assert len(cm.Ledger(tmp_path / "l").releases()) == charged


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"composition": "other"}, "composition must be .*one of.*, got 'other'"),
        ({"composition": "advanced"}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": -0.1}, "delta"),
    ],
)
def test_invalid_ledgers_are_refused(tmp_path, options, words):
    with pytest.raises(ParameterError, match=words):
        cm.Ledger.create(tmp_path / "l", **options)
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ files


def test_a_file_holds_one_ledger(ledger, tmp_path):
    with pytest.raises(DataError, match=r"sold\.sqlite exists from an earlier ledger"):
        cm.Ledger.create(ledger.path)
    with pytest.raises(
        DataError,
        match=r"there is no ledger in .*none.* create one: convexmarket ledger PATH --create, or ",
    ):
        cm.Ledger(tmp_path / "none")
    with pytest.raises(DataError, match=r"no ledger in .*market\.sqlite"):
        cm.Ledger(tmp_path)
    (tmp_path / "text").write_text("no database at all" * 99)
    with pytest.raises(DataError, match="is damaged or not an SQLite database"):
        cm.Ledger(tmp_path / "text")
    with pytest.raises(DataError, match="earlier ledger"):
        cm.Ledger.create(tmp_path / "text")
    assert (tmp_path / "text").read_text() == "no database at all" * 99
    assert not list(tmp_path.glob("*.new"))
    assert "basic composition" in repr(ledger)
    assert "3 sellers" in repr(ledger.account(IDS))


def test_a_ledger_cannot_be_opened_as_a_market(tmp_path):
    cm.Ledger.create(tmp_path / "market.sqlite").disconnect()
    with pytest.raises(DataError, match="without the tables of a market"):
        cm.OnlineMarket(tmp_path)
    assert cm.Ledger(tmp_path).sales().empty


# ------------------------------------------------------------------ with learners


ROWS = np.random.default_rng(0).uniform(-0.5, 0.5, (30, 2))
LABELS = np.where(ROWS[:, 0] > 0, 1, -1)
OWNERS = [f"row-{k}" for k in range(30)]


def test_a_second_release_is_refused_before_it_draws_noise(tmp_path):
    erm = cm.KernelERM(regularization=1.0).fit(ROWS, LABELS)
    with cm.Ledger.create(tmp_path / "l", delta=1e-5) as ledger:
        ledger.sell(OWNERS, 1.0, 0.1)
        account = ledger.account(OWNERS)
        release = cm.release.FunctionRelease(erm, 0.75, 1e-6, accountant=account)
        assert np.array_equal(account.spent, release.guarantee.epsilon)
        generator = np.random.default_rng(1)
        before = generator.bit_generator.state
        with pytest.raises(BudgetExceededError, match="30 of 30 rows"):
            cm.release.FunctionRelease(erm, 0.75, 1e-6, accountant=account, random_state=generator)
        assert generator.bit_generator.state == before
        assert len(ledger.releases()) == 1


# ------------------------------------------------------------------ limits


AMOUNTS = st.sampled_from([Fraction(0), Fraction(1, 8), Fraction(1, 4), Fraction(1), Fraction(3)])


NAMES = st.sampled_from([None, "x", "y", "z"])


class AgainstADictionary(RuleBasedStateMachine):
    """Compare a ledger with dictionaries. Amounts are multiples of 2^-k, so sums are exact."""

    @initialize()
    def start(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "sold.sqlite")
        self.ledger = cm.Ledger.create(self.path)
        self.sold = {}  # (id, release or None) -> amount
        self.charged = {}  # name -> {id: amount}
        self.paid = dict.fromkeys(IDS, Fraction(0))
        self.unnamed = 0

    def teardown(self):
        if hasattr(self, "ledger"):
            self.ledger.disconnect()
            self.folder.cleanup()

    def of_any(self, id):
        """Compute the amount of a seller's sales for any release that releases have used."""
        return sum(
            (
                max(Fraction(0), amounts.get(id, Fraction(0)) - self.sold.get((id, name), 0))
                for name, amounts in self.charged.items()
            ),
            Fraction(0),
        )

    def left(self, id, name):
        sold = self.sold.get((id, None), Fraction(0))
        custom = self.sold.get((id, name), Fraction(0)) if name is not None else Fraction(0)
        return sold + custom - self.of_any(id)

    @rule(amounts=st.lists(st.tuples(st.sampled_from(IDS), AMOUNTS), max_size=4), release=NAMES)
    def sell(self, amounts, release):
        ids = [id for id, _ in amounts]
        epsilon = np.array([float(amount) for _, amount in amounts])
        if release in self.charged:
            with pytest.raises(ReleaseChargedError):
                self.ledger.sell(ids, epsilon, 2 * epsilon, release)
            return
        self.ledger.sell(ids, epsilon, 2 * epsilon, release)
        for id, amount in amounts:
            if amount:
                self.sold[id, release] = self.sold.get((id, release), Fraction(0)) + amount
                self.paid[id] += 2 * amount

    @rule(
        amounts=st.dictionaries(st.sampled_from(IDS), AMOUNTS, min_size=1),
        release=NAMES,
        first=st.booleans(),
    )
    def charge(self, amounts, release, first):
        account = self.ledger.account(IDS, release)
        release_of = guarantee([float(amount) for amount in amounts.values()])
        rows = [IDS.index(id) for id in amounts]
        expected = None
        if release in self.charged:
            expected = ReleaseChargedError
        elif any(amount > self.left(id, release) for id, amount in amounts.items() if amount):
            expected = BudgetExceededError
        if expected is not None:
            for ask in (account.check, account.charge):
                with pytest.raises(expected):
                    ask(release_of, rows)
            return
        if first:
            account.check(release_of, rows)
        account.charge(release_of, rows)
        name = release or f"unnamed-{len(self.charged) + 1}"
        self.charged[name] = {id: amount for id, amount in amounts.items() if amount}

    @rule()
    def reopen(self):
        self.ledger.disconnect()
        self.ledger = cm.Ledger(self.path)

    @invariant()
    def tells_the_same(self):
        if not hasattr(self, "ledger"):
            return
        charges = {}
        for row in self.ledger.charges().to_dict("records"):
            charges.setdefault(row["release"], {})[row["id"]] = Fraction(row["epsilon"])
        assert charges == {name: amounts for name, amounts in self.charged.items() if amounts}
        assert self.ledger.releases()["name"].tolist() == list(self.charged)
        message = self.ledger.balance().to_dict("records")
        assert {row["id"] for row in message} == {id for id, _ in self.sold}
        for row in message:
            id = row["id"]
            spent = sum(amounts.get(id, Fraction(0)) for amounts in self.charged.values())
            open_own = sum(
                amount
                for (seller, name), amount in self.sold.items()
                if seller == id and name is not None and name not in self.charged
            )
            assert Fraction(row["spent"]) == spent
            assert Fraction(row["left"]) == self.left(id, None) + open_own
            assert Fraction(row["paid"]) == self.paid[id]
            assert spent + self.left(id, None) + open_own <= Fraction(row["sold"])
        for name in (None, "x"):
            remaining = self.ledger.account(IDS, name).remaining
            if name not in self.charged:
                assert [Fraction(value) for value in remaining] == [
                    self.left(id, name) for id in IDS
                ]


TestAgainstADictionary = AgainstADictionary.TestCase
