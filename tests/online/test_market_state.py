"""Test the stored state of online markets, and the errors of refused steps."""

import json
import math
import sqlite3
import tempfile

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import convexmarket as cm
from convexmarket.errors import DataError, MarketClosedError, OfferError, ParameterError, PriorError
from convexmarket.ledger import store
from convexmarket.online import AdaptivePolicy, OnlinePolicy
from convexmarket.online.online_market import OnlineMarket

BOUGHT, EXPENSIVE = 1.1, 4.0  # reports of sellers who sell and who do not sell


def fixed(expected=100):
    return OnlinePolicy(cm.Uniform(1, 5), expected, mu=1, sigma=1, gamma=1)


@pytest.fixture
def market(tmp_path):
    with OnlineMarket.create(tmp_path / "market", fixed()) as created:
        yield created


def database(market):
    return market.folder / "market.sqlite"


def raw(market):
    return sqlite3.connect(database(market), isolation_level=None)


def lengths(accepted):
    return json.dumps({"sellers": len(accepted)})


# ------------------------------------------------------------------ quotes and answers


def test_several_answers_are_recorded_together_or_not_at_all(market):
    for id in ("a", "b", "c"):
        market.quote(id, BOUGHT)
    assert [offer.status for offer in market.answer(["a", "b", "a"], "accepted")] == [
        "accepted"
    ] * 3
    with pytest.raises(OfferError, match="has accepted its offer"):
        market.answer(["c", "a"], "declined")
    assert market.counts() | {"accepted": 2, "declined": 0, "offered": 1} == market.counts()
    with pytest.raises(ParameterError, match="answer must be"):
        market.answer(["c"], "lapsed")


def test_errors_name_the_seller_and_the_reason(tmp_path):
    market = OnlineMarket.create(tmp_path, fixed(3))
    for id, report in (("yes", BOUGHT), ("no", BOUGHT), ("expensive", EXPENSIVE)):
        market.quote(id, report)
    market.accept("yes")
    market.decline("no")
    refused = {
        r"'yes' was quoted at the sensitivity 1\.1.*1\.2": lambda: market.quote("yes", 1.2),
        r"'yes' has accepted.*cannot be declined": lambda: market.decline("yes"),
        r"'no' has declined.*cannot be accepted": lambda: market.accept("no"),
        "'who' was never quoted; check the id": lambda: market.accept("who"),
        "nothing is bought from seller 'expensive'": lambda: market.accept("expensive"),
    }
    for words, call in refused.items():
        with pytest.raises(OfferError, match=words):
            call()
    with pytest.raises(MarketClosedError, match="number 4, but the market ends after the 3"):
        market.quote("new", BOUGHT)
    market.close(lengths)
    with pytest.raises(MarketClosedError, match=r"'new' arrives too late: .* after 3 sellers"):
        market.quote("new", BOUGHT)
    for batch in (0, True, 2.0):
        with pytest.raises(ParameterError, match=r"batch must be a whole number >= 1"):
            next(market.quote_many([], batch=batch))
    for id in ("", " a", "a\u200bb", 17.5, None):
        with pytest.raises(ParameterError, match="id"):
            market.quote(id, BOUGHT)


@pytest.mark.parametrize(
    "sensitivity", [math.nan, math.inf, -0.1, True, "1.1", None, 10**400, 1j, np.array([1.1, 1.2])]
)
def test_invalid_reports_are_refused(market, sensitivity):
    with pytest.raises(ParameterError, match=r"sensitivity must be a finite number >= 0"):
        market.quote("s17", sensitivity)


def test_offers_of_a_stream_are_stored_before_they_are_returned(market):
    stream = market.quote_many(((f"s{i}", BOUGHT) for i in range(6)), batch=3)
    first = next(stream)
    with OnlineMarket(market.folder) as other:
        assert other.offers()["id"][0] == first.id
        assert other.counts()["quoted"] == 3


# ------------------------------------------------------------------ new plans


def test_new_plans_depend_only_on_sellers_before_the_stage(tmp_path):
    policy = AdaptivePolicy(fixed(60), learn=True)
    market = OnlineMarket.create(tmp_path, policy)
    reports = np.random.default_rng(1).uniform(1, 5, 60)
    sold, policies = [], {0: policy.opening}
    for i, c in enumerate(reports):
        if i in policy.stages:
            policies[i] = policy.replanned(reports[:i].copy(), np.array(sold))
        offer = market.quote(f"s{i}", c)
        current = policies[max(policies)]
        assert (offer.epsilon, offer.payment) == current.quote(float(c))
        declined = offer.epsilon > 0 and i % 3 == 0
        if declined:
            market.decline(offer.id)
        elif offer.epsilon > 0 and i % 3 == 1:
            market.accept(offer.id)  # open offers count as sold
        sold.append(0.0 if declined else offer.epsilon)
    plans = market.plans()
    assert [plan.after for plan in plans] == sorted(policies) == [0, *policy.stages]
    assert [plan.number for plan in plans] == list(range(1, len(plans) + 1))
    starts = np.array([plan.after for plan in plans])
    expected = np.searchsorted(starts, np.arange(60), side="right")
    assert market.offers()["plan"].tolist() == expected.tolist()
    for plan in plans:
        assert plan.policy.to_dict() == policies[plan.after].to_dict()


# ------------------------------------------------------------------ closing


@pytest.mark.parametrize("result", [{"weights": []}, "not JSON", None, b"{}"])
def test_a_release_that_is_not_json_is_refused(market, result):
    with pytest.raises(ParameterError, match="release did not return JSON"):
        market.close(lambda accepted: result)
    assert market.released is None
    assert market.close(lengths) == '{"sellers": 0}'


# ------------------------------------------------------------------ folders and files


def test_a_folder_contains_one_market(market):
    before = market.quote("s0", BOUGHT)
    with pytest.raises(DataError, match="exists from an earlier market"):
        OnlineMarket.create(market.folder, fixed())
    assert OnlineMarket(market.folder).quote("s0", BOUGHT) == before
    assert not list(market.folder.glob("*.new"))


def test_a_market_stores_its_policy_and_problem(tmp_path):
    problem = '# Käufer "a"\nkind = "online"\r\n\ttab'
    policy = AdaptivePolicy(fixed(50))
    created = OnlineMarket.create(tmp_path / "a" / "b", policy, problem)
    reopened = OnlineMarket(str(tmp_path / "a" / "b"))
    assert created.problem == reopened.problem == problem
    assert created.policy.to_dict() == reopened.policy.to_dict() == policy.to_dict()
    assert "50 sellers" in repr(reopened)


def test_a_missing_market_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"there is no market in .*OnlineMarket\.create"):
        OnlineMarket(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="folder"):
        OnlineMarket.create(tmp_path / "file", fixed())
    with pytest.raises(ParameterError, match=r"policy must be .*an OnlinePolicy.*, got 3"):
        OnlineMarket.create(tmp_path / "x", 3)
    with pytest.raises(ParameterError, match=r"problem must be .*the text.*, got None"):
        OnlineMarket.create(tmp_path / "x", fixed(), None)
    assert not (tmp_path / "x").exists()


def test_the_journal_of_a_missing_market_is_not_applied_to_a_new_market(market):
    market.quote("s0", BOUGHT)
    market.disconnect()
    database(market).unlink()
    assert (market.folder / "market.sqlite-journal").exists()
    with pytest.raises(DataError, match="-journal exists from an earlier market"):
        OnlineMarket.create(market.folder, fixed())
    with pytest.raises(DataError, match="there is no market"):
        market.quote("s0", BOUGHT)


def test_a_full_disk_does_not_lose_earlier_steps(market):
    offers = [market.quote("s0", BOUGHT)]
    pages = market._store._connection.execute("PRAGMA max_page_count = 1").fetchone()[0]
    with pytest.raises(DataError, match="has no space left on its disk; earlier steps are"):
        offers.extend(market.quote(f"{i}-" + "x" * 190, BOUGHT) for i in range(1, 100))
    market._store._connection.execute(f"PRAGMA max_page_count = {10 * pages}")
    assert market.offers()["id"].tolist() == [offer.id for offer in offers]
    assert market.quote("more", BOUGHT).number == len(offers) + 1


def test_waiting_for_a_lock_times_out(market, monkeypatch):
    monkeypatch.setattr(store, "PATIENCE", 0.05)
    market.disconnect()
    other = raw(market)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(
        DataError, match=r"in use by other processes.*this step was not stored: try"
    ):
        market.quote("s0", BOUGHT)
    other.execute("ROLLBACK")
    assert market.quote("s0", BOUGHT).number == 1
    with market._store.alone(), pytest.raises(DataError, match="being closed by another process"):
        market.close(lengths)
    assert market.close(lengths, lapse=True) == '{"sellers": 0}'


def test_repeated_quotes_are_synced_before_they_are_returned(market, monkeypatch):
    synced = []
    monkeypatch.setattr(store, "sync", lambda path: synced.append(path.name))
    market.quote("s0", BOUGHT)
    assert synced == []  # the commit syncs the database
    for read in (lambda: market.quote("s0", BOUGHT), market.offers):
        synced.clear()
        read()
        assert synced == ["market.sqlite-journal"]


# ------------------------------------------------------------------ database constraints


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("INSERT INTO quotes VALUES (3, 'new', 1.1, -0.1, 0.1, 1, '')", "CHECK"),
        ("INSERT INTO quotes VALUES (3, 'new', 1.1, 9e999, 0.1, 1, '')", "CHECK"),
        ("INSERT INTO quotes VALUES (3, 'new', 1.1, 0.1, NULL, 1, '')", "NOT NULL"),
        ("INSERT INTO answers VALUES (1, 'maybe', '')", "CHECK"),
    ],
)
def test_inconsistent_rows_are_refused(market, statement, words):
    market.quote("s0", BOUGHT)
    market.quote("s1", EXPENSIVE)
    other = raw(market)
    with pytest.raises(sqlite3.IntegrityError, match=words):
        other.execute(statement)
    other.close()
    assert market.counts()["quoted"] == 2


# ------------------------------------------------------------------ against a dictionary

IDS = st.sampled_from(["a", "b", "c", "d", "e", "f"])
REPORTS = st.one_of(st.sampled_from([1.0, 1.1, 4.0]), st.floats(1.0, 5.0))


class AgainstADictionary(RuleBasedStateMachine):
    """Compare the offers of a market that is reopened at random times with a dictionary."""

    @initialize()
    def start(self):
        self.folder = tempfile.TemporaryDirectory()
        self.policy = fixed(5)
        self.market = OnlineMarket.create(self.folder.name, self.policy)
        self.model, self.release = {}, None

    def teardown(self):
        if hasattr(self, "market"):
            self.market.disconnect()
            self.folder.cleanup()

    def expected_quote(self, id, sensitivity):
        """Return the offer in the dictionary, or the type of the expected error."""
        if id in self.model:
            return self.model[id] if self.model[id]["sensitivity"] == sensitivity else OfferError
        if self.release is not None or len(self.model) == 5:
            return MarketClosedError
        epsilon, payment = self.policy.quote(sensitivity)
        self.model[id] = {
            "id": id,
            "number": len(self.model) + 1,
            "sensitivity": sensitivity,
            "epsilon": epsilon,
            "payment": payment,
            "status": "offered" if epsilon else "nothing bought",
        }
        return self.model[id]

    def agree(self, call, expected):
        if isinstance(expected, dict):
            assert vars(call()) == expected
        else:
            with pytest.raises(expected):
                call()

    @rule(id=IDS, sensitivity=REPORTS)
    def quote(self, id, sensitivity):
        expected = self.expected_quote(id, sensitivity)
        self.agree(lambda: self.market.quote(id, sensitivity), expected)

    @rule(id=IDS)
    def quote_again(self, id):
        if id in self.model:
            report = self.model[id]["sensitivity"]
            self.agree(lambda: self.market.quote(id, report), self.model[id])

    @rule(reports=st.lists(st.tuples(IDS, REPORTS), max_size=4), batch=st.integers(1, 5))
    def quote_many(self, reports, batch):
        stream = self.market.quote_many(reports, batch)
        expected_offers = [self.expected_quote(*reports[0])] if reports else []
        while len(expected_offers) < len(reports) and isinstance(expected_offers[-1], dict):
            expected_offers.append(self.expected_quote(*reports[len(expected_offers)]))
        for expected in expected_offers:
            self.agree(lambda: next(stream), expected)

    @rule(id=IDS, answer=st.sampled_from(["accepted", "declined"]))
    def answer(self, id, answer):
        call = self.market.accept if answer == "accepted" else self.market.decline
        expected = self.model.get(id, OfferError)
        if id in self.model:
            if expected["status"] == "offered":
                expected["status"] = answer
            elif expected["status"] != answer:
                expected = OfferError
        self.agree(lambda: call(id), expected)

    @rule()
    def reopen(self):
        self.market.disconnect()
        self.market = OnlineMarket(self.folder.name)

    @precondition(lambda self: len(self.model) >= 3)
    @rule(lapse=st.booleans())
    def close(self, lapse):
        open_offers = [row for row in self.model.values() if row["status"] == "offered"]
        if self.release is None and open_offers and not lapse:
            with pytest.raises(OfferError, match=f"without an answer: {len(open_offers)} "):
                self.market.close(lengths)
            return
        for row in open_offers:
            row["status"] = "declined"
        if self.release is None:
            accepted = sum(row["status"] == "accepted" for row in self.model.values())
            self.release = json.dumps({"sellers": accepted})
        assert self.market.close(lengths, lapse) == self.release

    @invariant()
    def state_matches(self):
        if not hasattr(self, "market"):
            return
        frame = self.market.offers()
        assert frame.drop(columns="plan").to_dict("records") == list(self.model.values())
        statuses = [row["status"] for row in self.model.values()]
        counts = {name: statuses.count(name) for name in set(statuses)}
        counted = {name: number for name, number in self.market.counts().items() if number}
        quoted = {"quoted": len(statuses)} if statuses else {}
        assert counted == {"expected": 5, **quoted, **counts}
        assert self.market.is_closed == (self.release is not None)
        assert self.market.released == self.release


TestAgainstADictionary = AgainstADictionary.TestCase


def test_a_refused_report_leaves_no_plan(tmp_path):
    """If the first step of a stage is rolled back, the process must discard the stage's plan."""
    policy = AdaptivePolicy(fixed(60))
    with OnlineMarket.create(tmp_path, policy) as first, OnlineMarket(tmp_path) as second:
        for i in range(10):
            first.quote(f"s{i}", BOUGHT)
        for refuse in (
            lambda: first.quote("typo", 9.0),
            lambda: list(first.quote_many([("typo", 9.0)])),
        ):
            with pytest.raises(PriorError):
                refuse()
            assert len(first.plans()) == 1
        for i in range(10):
            first.decline(f"s{i}")
        offer = first.quote("s10", BOUGHT)
        assert offer.epsilon > 0
        assert second.quote("s10", BOUGHT) == offer
        (_, stored) = second.plans()
        assert (offer.epsilon, offer.payment) == stored.policy.quote(BOUGHT)
