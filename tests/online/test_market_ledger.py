"""The ledger of a market records acceptances as sales and charges models before training."""

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import (
    BudgetExceededError,
    DataError,
    OfferError,
    ParameterError,
    ProblemFileError,
    SolverError,
)
from convexmarket.learners import perturbed
from convexmarket.online.online_market import OnlineMarket
from convexmarket.online.release import WITHOUT_MODEL, close_without_model, model_guarantee
from convexmarket.privacy import Guarantee
from convexmarket.studies.files import OnlineFile, load_file
from convexmarket.studies.files.online_file import close_market, open_market
from tests.online.builders import TRAINED_MARKET

ROWS = """id,one,two,label
a,0.5,0.5,yes
b,-0.5,0.1,no
c,0.3,-0.2,yes
e,0.2,0.2,yes
"""
BOUGHT = {"a": 1.1, "b": 1.5, "c": 1.6, "e": 1.2}


def claim(accepted, epsilon):
    return Guarantee(np.asarray(epsilon, dtype=float), 0.0, "a model", "sharp", ())


@pytest.fixture
def market(tmp_path):
    """Return a market in which four sellers have accepted their offers."""
    policy = cm.OnlinePolicy(cm.Uniform(1, 5), 8, mu=1, sigma=10, gamma=0.1)
    with OnlineMarket.create(tmp_path / "market", policy) as opened_market:
        for id, report in BOUGHT.items():
            opened_market.quote(id, report)
            opened_market.accept(id)
        yield opened_market


@pytest.fixture
def opened(tmp_path):
    """Return a function that opens a market from a problem file and accepts four offers."""

    def open_one(*settings):
        (tmp_path / "market.toml").write_text(TRAINED_MARKET)
        (tmp_path / "rows.csv").write_text(ROWS)
        market = open_market(load_file(tmp_path / "market.toml", list(settings)), tmp_path / "m")
        for id, report in BOUGHT.items():
            market.quote(id, report)
            market.accept(id)
        return market

    return open_one


def test_an_acceptance_is_recorded_as_a_sale(market):
    market.quote("no", 1.3)
    market.decline("no")
    market.quote("open", 1.3)
    market.quote("expensive", 5.0)
    market.accept("a")
    offers, sales = market.offers(), market.ledger.sales()
    accepted = offers[offers["status"] == "accepted"]
    for name, column in (("id", "id"), ("epsilon", "epsilon"), ("price", "payment")):
        assert sales[name].tolist() == accepted[column].tolist()
    assert sales["release"].isna().all()
    assert market.ledger.balance()["left"].tolist() == accepted["epsilon"].tolist()
    with cm.Ledger(market.folder) as reopened:
        assert reopened.sales().equals(sales)


def test_a_refused_sale_undoes_the_acceptance(market, monkeypatch):
    market.quote("f", 1.2)
    with market._store.writing() as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON sales BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    with pytest.raises(DataError, match="refused a step"):
        market.accept("f")
    assert market.quote("f", 1.2).status == "offered"
    assert len(market.ledger.sales()) == 4


def test_the_model_is_charged_before_it_is_trained(market):
    sold = market.offers()["epsilon"].to_numpy()
    balances = []

    def release(accepted):
        balances.append(market.ledger.balance()["spent"].tolist())
        return "1"

    assert market.close(release, guarantee=lambda a: claim(a, a["epsilon"] / 2)) == "1"
    assert balances == [(sold / 2).tolist()]
    assert market.ledger.releases()["name"].tolist() == ["market-model"]
    market.ledger.account(list(BOUGHT)).charge(claim(None, sold / 2))
    assert market.ledger.balance()["left"].tolist() == [0.0] * 4


def test_a_model_beyond_the_sold_privacy_is_refused_before_training(market):
    def fail(accepted):
        raise AssertionError("trained")

    with pytest.raises(BudgetExceededError, match=r"1 of 4 rows: row 'c'"):
        market.close(fail, guarantee=lambda a: claim(a, a["epsilon"] * [1, 1, 1.001, 1]))
    market.ledger.account(["b"], release="other").charge(claim(None, [1e-3]))
    with pytest.raises(BudgetExceededError, match=r"1 of 4 rows: row 'b'"):
        market.close(fail)
    with pytest.raises(ParameterError, match="covers 3 rows"):
        market.close(fail, guarantee=lambda a: claim(a, [0.1] * 3))
    assert not market.is_closed
    assert market.ledger.releases()["name"].tolist() == ["other"]
    market.quote("late", 1.2)
    with pytest.raises(OfferError, match="without an answer"):
        market.close(fail)
    remaining = market.close(lambda a: "1", True, lambda a: claim(a, a["epsilon"] * [1, 0.5, 1, 1]))
    assert remaining == "1"


def test_repeated_attempts_are_charged_their_maximum(market):
    def fail(accepted):
        raise DataError("no rows")

    sold = market.offers()["epsilon"].to_numpy()
    attempts = [[0.5, 0.5, 0.0, 0.0], [0.25, 0.75, 0.5, 0.0], [0.5, 0.5, 0.5, 0.0]]
    for shares in attempts:
        with pytest.raises(DataError, match="no rows"):
            market.close(fail, guarantee=lambda a, shares=shares: claim(a, sold * shares))
    assert market.released is None
    expected = sold * np.max(attempts, axis=0)
    assert market.ledger.balance()["spent"].to_numpy() == pytest.approx(expected, rel=1e-15)
    assert market.ledger.releases()["name"].tolist() == ["market-model", "market-model-2"]
    with pytest.raises(BudgetExceededError, match=r"row 'e'"):
        market.close(fail, guarantee=lambda a: claim(a, sold * [1, 1, 1, 1.5]))
    assert market.close(lambda accepted: "1") == "1"
    assert market.ledger.balance()["left"].to_numpy() == pytest.approx(np.zeros(4), abs=1e-15)


def no_solver(accepted):
    raise SolverError("stopped too early")


def no_json(accepted):
    return "no JSON"


def no_rows(accepted):
    raise ProblemFileError("no rows")


def interrupted(accepted):
    raise KeyboardInterrupt


def test_a_failed_release_remains_charged_and_a_new_release_is_charged_in_full(market):
    sold = market.offers()["epsilon"].to_numpy()

    def part(accepted):
        return claim(accepted, sold / 4)

    expected = 0.0
    for release, error in [
        (no_rows, ProblemFileError),
        (no_solver, SolverError),
        (interrupted, KeyboardInterrupt),
        (no_rows, ProblemFileError),
        (no_json, ParameterError),
        (lambda accepted: 1 / 0, ZeroDivisionError),
    ]:
        failed_before = "market-model-failed" in str(market.ledger.releases()["name"].tolist()[-1:])
        with pytest.raises(error):
            market.close(release, guarantee=part)
        expected += 0.25 if failed_before or not expected else 0.0
        assert market.ledger.balance()["spent"].to_numpy() == pytest.approx(expected * sold)
    assert expected == 0.75
    assert market.ledger.releases()["name"].tolist() == [
        "market-model",
        "market-model-failed-1",
        "market-model-2",
        "market-model-failed-2",
        "market-model-3",
        "market-model-failed-3",
    ]
    assert market.close(lambda accepted: "1", guarantee=part) == "1"
    assert market.ledger.balance()["left"].to_numpy() == pytest.approx(np.zeros(4), abs=1e-15)


@pytest.mark.parametrize("release", [no_solver, no_json])
def test_a_failed_model_is_not_drawn_again_without_remaining_budget(market, release):
    def fail(accepted):
        raise AssertionError("trained")

    with pytest.raises((SolverError, ParameterError)):
        market.close(release)
    for _ in range(2):
        with pytest.raises(
            BudgetExceededError, match=r"The failure of an earlier attempt.*--without-model"
        ):
            OnlineMarket(market.folder).close(fail)
    assert len(market.ledger.releases()) == 2
    close_without_model(market)
    assert market.released == WITHOUT_MODEL
    assert market.ledger.balance()["left"].tolist() == [0.0] * 4


# ------------------------------------------------------------------ with a learner


def test_the_ledger_contains_the_guarantee_of_the_model(opened):
    market = opened()
    result = close_market(market, leave_out=["c"])
    balance = market.ledger.balance().set_index("id")
    assert result.facts["model"]["guarantees"] == balance["spent"].drop("c").to_dict()
    assert balance.loc["c", "spent"] == 0
    assert (balance["spent"] <= balance["sold"]).all()
    assert market.ledger.releases()["sellers"].tolist() == [3]
    assert close_market(market).facts["model"] == result.facts["model"]
    assert len(market.ledger.releases()) == 1


def test_a_model_beyond_the_budget_reads_no_rows(opened, tmp_path):
    market = opened()
    (tmp_path / "rows.csv").unlink()
    market.ledger.account(["e"], release="other").charge(claim(None, [0.01]))
    with pytest.raises(BudgetExceededError, match=r"1 of 4 rows: row 'e'"):
        close_market(market)
    assert not market.is_closed
    with pytest.raises(DataError, match=r"rows\.csv"):
        close_market(market, leave_out=["e"])


def test_a_guarantee_beyond_the_sold_privacy_is_refused(opened, tmp_path):
    market = opened('learner.calibration="noise"', 'learner.accounting="paper"')
    (tmp_path / "rows.csv").unlink()
    with pytest.raises(BudgetExceededError, match="4 of 4 rows"):
        close_market(market)
    assert not market.is_closed


def test_the_guarantee_of_the_model_is_computed_without_rows(opened, tmp_path):
    market = opened()
    offers = market.offers()
    (tmp_path / "rows.csv").unlink()
    problem = load_file(tmp_path / "market.toml")
    guarantee = model_guarantee(problem.classifier(), offers, leave_out=["b"])
    assert guarantee.epsilon[1] == 0
    assert np.all(guarantee.epsilon <= offers["epsilon"])
    with pytest.raises(ParameterError, match="no seller accepted"):
        model_guarantee(problem.classifier(), offers[:0])


def test_missing_rows_are_not_charged_but_a_failed_fit_is_charged(opened, tmp_path, monkeypatch):
    market = opened()
    rows, read = (tmp_path / "rows.csv").read_bytes(), OnlineFile.market_rows

    def rows_after_deletion(problem):  # delete the rows when the market is closed
        if market.is_closed:
            (tmp_path / "rows.csv").unlink()
        return read(problem)

    with monkeypatch.context() as patch:
        patch.setattr(OnlineFile, "market_rows", rows_after_deletion)
        with pytest.raises(DataError, match=r"rows\.csv"):
            close_market(market)
    assert market.is_closed
    (tmp_path / "rows.csv").write_bytes(rows)
    with monkeypatch.context() as patch:
        patch.setattr(perturbed, "minimise", lambda objective, *_: np.ones(objective.shift.size))
        with pytest.raises(SolverError, match="gradient norm"):
            close_market(market)
    assert market.ledger.releases()["name"].tolist() == ["market-model", "market-model-failed-1"]
    with pytest.raises(BudgetExceededError, match="The failure of an earlier attempt"):
        close_market(market)
    close_without_model(market)
    assert market.released == WITHOUT_MODEL
