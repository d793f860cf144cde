"""Test studies of markets: rows, paired draws, learners, failures, limits and journals."""

import ast
import functools
import json
import sys
import time
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.data.datasets import synthetic
from convexmarket.errors import ConvexMarketError, ParameterError, SolverError
from convexmarket.studies import progress, study
from tests import one_in, parsed

#: Modules that do not exist on Windows.
POSIX = {"fcntl", "resource", "pwd", "grp", "termios"}
IMPORTS = ast.Import | ast.ImportFrom
PRIOR = cm.Uniform(1, 5)
SELLERS = cm.Sellers(PRIOR.sample(12, 0), PRIOR)
BASE = cm.Spread() + 2 * cm.Noise() + 0.02 * cm.Payments()


class Imbalance(cm.Term):
    """User-defined term: absolute difference between the weighted mean age and the mean age."""

    def __init__(self, ages):
        self.ages = np.asarray(ages, dtype=float)

    def expression(self, quantities):
        return cp.abs(quantities.weights @ (self.ages - self.ages.mean()))


def by_gamma(gamma):
    return cm.Market.standard(SELLERS, mu=1, sigma=2, gamma=gamma)


def drawn(gamma, draw):
    sellers = cm.Sellers(PRIOR.sample(8, draw), PRIOR)
    return cm.Market.standard(sellers, mu=1, sigma=2, gamma=gamma)


def run(markets, study=(), **options):
    return cm.Study(markets, **dict(study)).run(progress=False, **options)


def without_times(frame):
    return frame.drop(columns="seconds")


def test_rows_contain_the_allocations_and_payments_of_the_markets():
    markets = {"free": cm.Market(SELLERS, BASE), "capped": cm.Market(SELLERS, BASE, [cm.Cap(1.5)])}
    runs = run(markets)
    frame = runs.to_frame().set_index("market")
    assert runs.keys["runs"] == ("market",)
    for name, market in markets.items():
        allocation = cm.allocate(market)
        paid = cm.payments(market, allocation)
        assert frame.objective[name] == allocation.objective
        terms = np.linalg.norm(allocation.weights) + 2 / allocation.eta
        assert frame.error[name] == pytest.approx(terms)
        assert frame.payments[name] == paid.sum()
        rows = runs.to_frame("sellers").query("market == @name")
        assert (rows.epsilon.to_numpy() == allocation.epsilon).all()
        assert (rows.payment.to_numpy() == paid).all()
    audits = runs.to_frame("audits")
    assert audits.market.tolist() == ["free", "capped"]
    assert audits.incentive_compatible.all()


def test_a_failed_market_has_a_row_with_its_error():
    impossible = cm.Market(SELLERS, BASE, [cm.MaxEpsilon(0.05), cm.EtaRange(10, 100)])
    markets = {"good": cm.Market(SELLERS, BASE), "bad": impossible}
    broken = {"no market": lambda: 3, "broken": lambda k: k / 0}
    runs = run(markets | broken, {"axes": {"k": np.array([1, 2])}})
    assert runs.to_frame().status.tolist() == ["solved", "infeasible", "failed", "error", "error"]
    frame = runs.to_frame().drop_duplicates("market").set_index("market")
    assert "EtaRange starts at 10" in frame.message["bad"]
    assert "returned a int; return a Market" in frame.message["no market"]
    assert "ZeroDivisionError" in frame.message["broken"]
    texts = runs.statements()
    assert sum("bad: infeasible in 1 of 1 runs. " in text for text in texts) == 1
    assert "broken: error in 2 of 2 runs. ZeroDivisionError: division by zero" in texts


def test_draws_are_paired_and_reproducible():
    runs = run({"drawn": drawn}, {"axes": {"gamma": [0.01, 0.1]}, "draws": 3, "seed": 4})
    assert runs.keys["runs"] == ("market", "gamma", "draw")
    sellers = runs.to_frame("sellers")
    reports = sellers.pivot_table(index=["draw", "id"], columns="gamma", values="sensitivity")
    assert (reports[0.01] == reports[0.1]).all()
    assert reports[0.01].groupby("draw").sum().nunique() == 3
    again = run({"drawn": drawn}, {"axes": {"gamma": [0.01, 0.1]}, "draws": 3, "seed": 4})
    assert without_times(again.to_frame()).equals(without_times(runs.to_frame()))


@pytest.mark.parametrize("options", one_in(2, [{"time_limit": 60.0}, {"jobs": 2}]))
def test_workers_support_user_defined_terms_outside_modules(options):
    ages = np.linspace(20, 80, 12)

    class Local(Imbalance):
        pass

    markets = {"own": cm.Market(SELLERS, BASE + 0.5 * Local(ages)), "by": lambda: by_gamma(0.1)}
    there = run(markets, **options).to_frame()
    assert there.status.tolist() == ["solved", "solved"]
    assert without_times(there).equals(without_times(run(markets).to_frame()))


def test_a_run_beyond_the_limit_has_a_row():
    def endless():
        time.sleep(600)

    runs = run({"endless": endless, "good": lambda: by_gamma(0.1)}, time_limit=2.0)
    assert runs.to_frame().status.tolist() == ["time limit", "solved"]


def test_a_journal_is_resumed_and_changed_markets_are_run_again(tmp_path):
    journal, calls = tmp_path / "runs.jsonl", []

    def counted(gamma):
        calls.append(gamma)
        return by_gamma(gamma)

    axes = {"gamma": [0.01, 0.1]}
    first = run({"m": counted}, {"axes": axes}, journal=journal)
    assert len(calls) == 2 + 2  # the digest of each run calls the function once more
    again = run({"m": counted}, {"axes": {"gamma": [0.01, 0.1, 1.0]}}, journal=journal)
    assert len(calls) == 4 + 3 + 1
    assert again.to_frame().iloc[:2].equals(first.to_frame())
    assert len(journal.read_text().splitlines()) == 3
    run({"m": lambda gamma: by_gamma(max(gamma, 0.05))}, {"axes": axes}, journal=journal)
    assert len(journal.read_text().splitlines()) == 4
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ParameterError, match="not the journal"):
        run({"m": counted}, {"axes": axes}, journal=tmp_path / "notes")


def test_payments_and_audits_without_a_closed_form_are_computed_on_request():
    market = cm.Market(SELLERS, BASE + 0.1 * Imbalance(np.arange(12)))
    exact = run([market]).to_frame()
    assert exact.payments.isna().all()
    full = run([market], payments="all", tol=0.1, audits="all", audit_sellers=1, misreports=2)
    assert full.to_frame().payments.notna().all()
    assert full.to_frame("audits").sellers_audited.tolist() == [1]
    none = run([by_gamma(0.1)], payments="none", audits="none")
    assert none.to_frame().payments.isna().all()
    assert none.to_frame("audits").empty


def test_a_failed_audit_does_not_affect_other_audits(tmp_path, monkeypatch):
    def audited(market, **options):
        if market.objective == small.objective:
            raise SolverError("no answer")
        return cm.audit_incentives(market, **options)

    small = by_gamma(0.1)
    monkeypatch.setattr(study, "audit_incentives", audited)
    runs = run({"good": by_gamma(0.2), "bad": small})
    assert runs.to_frame("audits").message.tolist() == ["", "no answer"]
    assert "No tested misreport is profitable. Audited markets: 1 of 2, with" in str(runs)
    runs.write(tmp_path)
    again = cm.Runs.read(tmp_path).tables["audits"]
    pd.testing.assert_frame_equal(again, runs.tables["audits"], check_exact=True)


def test_a_learner_is_trained_with_the_sold_epsilons_and_tested():
    data = synthetic(30, 3, random_state=0)
    prior = cm.Uniform(0.01, 0.02)
    sellers = cm.Sellers(prior.sample(len(data.X_train), 0), prior)
    study = cm.Study(
        {"market": lambda gamma: cm.Market.standard(sellers, mu=1, sigma=3, gamma=gamma)},
        axes={"gamma": [0.001, 0.01], "regularization": [0.1, 1.0]},
        learner=lambda regularization: cm.PrivateLogisticRegression(
            regularization, data_norm=data.data_norm
        ),
        data=data,
        noise_draws=3,
    )
    runs = study.run(progress=False)
    frame, fits = runs.to_frame(), runs.to_frame("fits")
    assert len(frame) == 4
    assert runs.keys["fits"] == ("market", "gamma", "regularization", "noise_draw")
    means = fits.groupby(["gamma", "regularization"]).test_error.mean()
    assert np.allclose(frame.set_index(["gamma", "regularization"]).test_error, means)
    assert frame.validation_error.between(0, 1).all()
    assert f"constant has test error {(1 - abs(data.y_test.mean())) / 2:.4g};" in str(runs)
    assert (frame.guarantee_max <= frame.epsilon_max * (1 + 1e-9)).all()


class Refusing:
    def fit(self, X, y, *, epsilon, random_state=None):
        raise ValueError("too little privacy")


def no_learner():
    raise ValueError("too little privacy")


@pytest.mark.parametrize("learner", [Refusing(), no_learner])
def test_a_failed_fit_is_the_status_of_its_run(learner, tmp_path):
    data = synthetic(30, 3, random_state=0)
    market = cm.Market(cm.Sellers(PRIOR.sample(len(data.X_train), 0), PRIOR), BASE)
    study = cm.Study([market], learner=learner, data=data)
    runs = study.run(journal=tmp_path / "runs.jsonl", progress=False)
    frame = runs.to_frame()
    assert frame.status.tolist() == ["training failed"]
    assert frame.message.tolist() == ["ValueError: too little privacy"]
    assert frame.test_error.isna().all()
    assert runs.to_frame("fits").validation_error.isna().all()
    assert frame.payments.notna().all()
    assert "training failed" in str(runs)


class Majority:
    """Learner without a base class, whose guarantee is a multiple of the epsilon bought."""

    def __init__(self, factor):
        self.factor = factor

    def fit(self, X, y, *, epsilon, random_state=None):
        self.guarantee_ = cm.Guarantee.pure(self.factor * np.asarray(epsilon))
        return self

    def predict(self, X):
        return np.ones(len(X))


@pytest.mark.parametrize(("factor", "status"), [(1.0, "solved"), (5.0, "training failed")])
def test_a_run_fails_if_a_guarantee_exceeds_the_purchase(factor, status):
    data = synthetic(30, 3, random_state=0)
    market = cm.Market(cm.Sellers(PRIOR.sample(len(data.X_train), 0), PRIOR), BASE)
    frame = cm.Study([market], learner=Majority(factor), data=data).run(progress=False).to_frame()
    assert frame.status.tolist() == [status]
    assert frame.test_error.notna().all() == (status == "solved")


def test_parameters_with_defaults_are_not_axes():
    def market(gamma=0.3, other=2):
        return by_gamma(gamma * other / 2)

    studies = cm.Study({"by default": market}), cm.Study({"by axis": market}, axes={"gamma": [0.3]})
    runs = [study.run(progress=False).to_frame() for study in studies]
    assert runs[0].objective.tolist() == runs[1].objective.tolist()
    partial = cm.Study({"partial": functools.partial(by_gamma, gamma=0.3)})
    assert partial.run(progress=False).to_frame().objective.tolist() == runs[0].objective.tolist()


def test_a_journal_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ParameterError, match=r"cannot be written .*name another file"):
        cm.Study([by_gamma(0.3)]).run(journal=tmp_path / "file" / "runs.jsonl", progress=False)


@pytest.mark.parametrize(
    ("markets", "options", "words"),
    [
        ({}, {}, "markets must be a mapping"),
        ({"a": 3}, {}, "'a' must be a Market or a function"),
        ([by_gamma], {}, "'by_gamma' has the parameter 'gamma', which is not an axis"),
        ([by_gamma], {"axes": {"gamma": [1], "k": [2]}}, "axes names 'k'"),
        ([by_gamma], {"axes": {"gamma": []}}, "axes.gamma must be distinct numbers or texts, got"),
        ([by_gamma], {"axes": {"gamma": [1, 1]}}, "axes.gamma must be distinct numbers or texts"),
        ([by_gamma], {"axes": {"eta": [1], "gamma": [1]}}, "'eta', a column of the results"),
        ([by_gamma], {"axes": {"gamma": 1}}, "axes.gamma must be a list of numbers or text, got 1"),
        ([by_gamma], {"axes": {3: [1], "gamma": [1]}}, "axes names 3"),
        ([by_gamma], {"axes": ["gamma"]}, r"axes must be lists of values by name, .* got \['gamma"),
        (
            cm.Market(SELLERS, BASE),
            {"learner": by_gamma, "data": 4},
            "data must be a MarketData or RegressionData, such",
        ),
        ([by_gamma], {"learner": cm.PersonalizedRidge, "data": 4}, "learner must be a learner"),
        ([by_gamma], {"axes": {"draw": [1], "gamma": [1]}}, "axes names 'draw'"),
        ([by_gamma, by_gamma], {"axes": {"gamma": [1]}}, "two entries are named 'by_gamma'"),
        ([by_gamma], {"axes": {"gamma": [1]}, "draws": 0}, "draws must be a whole number >= 1"),
        ([by_gamma], {"axes": {"gamma": [1]}, "draws": 3}, "no market uses draw; pass"),
        ([by_gamma], {"axes": {"gamma": [1]}, "learner": 3}, "learner and data belong together"),
        ([by_gamma], {"learner": cm.PublicFeatures({"x": (0, 1)}), "data": 4}, "learner must be"),
    ],
)
def test_errors_name_an_invalid_argument_and_a_remedy(markets, options, words):
    with pytest.raises(ParameterError, match=words):
        cm.Study(markets, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"payments": "some"}, "payments must be one of 'exact', 'all', 'none'"),
        ({"jobs": 0}, "jobs must"),
        ({"journal": 3}, "journal must be the path of a file, got 3"),
        ({"progress": 3}, "progress must be True, False or a callable"),
        ({"solver": ["CLARABEL", "NONE"]}, "solver 'NONE' is not installed"),
    ],
)
def test_invalid_options_of_a_run_are_refused(options, words):
    with pytest.raises(ConvexMarketError, match=words):
        cm.Study([by_gamma(1.0)]).run(**{"progress": False, **options})


def test_runs_are_unchanged_by_a_round_trip(tmp_path):
    impossible = cm.Market(SELLERS, BASE, [cm.MaxEpsilon(0.05), cm.EtaRange(10, 100)])
    runs = run({"good": by_gamma, "bad": impossible}, {"axes": {"gamma": [0.1, 0.3]}})
    assert "nan" not in str(runs)
    runs.write(tmp_path / "runs")
    again = cm.Runs.read(tmp_path / "runs")
    assert (again.kind, again.keys, again.facts) == (runs.kind, runs.keys, runs.facts)
    for name, table in runs.tables.items():
        pd.testing.assert_frame_equal(again.tables[name], table, check_exact=True)
    assert again.statements() == runs.statements()


def test_damaged_runs_are_refused(tmp_path):
    many = cm.Sellers(PRIOR.sample(300, 0), PRIOR)
    runs = run([cm.Market(many, BASE)], audits="none")
    runs.write(tmp_path)
    (tmp_path / "tables" / "sellers.parquet").write_bytes(b"other")
    with pytest.raises(cm.errors.DataError, match="was changed after"):
        cm.Runs.read(tmp_path)
    results = runs.write(tmp_path, force=True)
    text = results.read_text()
    for damaged, words in (
        (text.replace('"study"', '"other"'), "kind is"),
        (text.replace('"tables"', '"tubles"'), "damaged"),
        (json.dumps({"format": "other"}), "has the format 'other'"),
    ):
        results.write_text(damaged)
        with pytest.raises(cm.errors.DataError, match=words):
            cm.Runs.read(tmp_path)


def test_a_report_starts_with_the_result_and_contains_every_table():
    impossible = cm.Market(SELLERS, BASE, [cm.MaxEpsilon(0.05), cm.EtaRange(10, 100)])
    runs = run({"good": drawn, "bad": impossible}, {"axes": {"gamma": [0.1, 0.3]}, "draws": 2})
    report = runs.report("Two markets")
    assert report.finding.startswith("4 of 5 runs were solved")
    assert report.tables[0].frame.solved.tolist() == [1.0, 1.0, 0.0]
    assert report.tables[0].frame.eta[1] == runs.to_frame().query("gamma == 0.3").eta.mean()
    assert {"runs", "sellers", "audits", "markets"} <= {table.name for table in report.tables}
    for name in {*np.concatenate([[*table] for table in runs.tables.values()])} - {"gamma"}:
        with pytest.raises(ParameterError, match="a column of the results"):
            cm.Study([by_gamma], axes={"gamma": [1], name: [1]})
    assert [text.get_text() for text in runs.plot().get_legend().get_texts()] == ["good"]
    assert "bad" in report.to_markdown()


def test_progress_includes_the_remaining_time():
    steps = []
    cm.Study([by_gamma(0.1)]).run(progress=lambda *step: steps.append(step))
    assert steps == [("markets", 0, 1), ("markets", 1, 1)]
    clock, stream = [0.0], StringIO()
    with patch.object(progress.time, "monotonic", lambda: clock[0]):
        lines = progress.ProgressLines(stream)
        for done in range(0, 41, 4):
            lines("runs", done, 40)
            clock[0] += 4.0
    assert "runs: 12 of 40, about 0:00:28 left\n" in stream.getvalue()
    assert stream.getvalue().endswith("runs: 40 of 40, 0:00:40\n")


def test_studies_without_limits_need_no_posix(tmp_path, monkeypatch):
    """POSIX modules cannot be imported on Windows."""
    for path in Path(cm.__file__).parent.rglob("*.py"):
        loaded = [node for node in parsed(path.read_text()).body if isinstance(node, IMPORTS)]
        names = {name.name for node in loaded for name in node.names}
        assert not names & POSIX, path
        assert not {getattr(node, "module", None) for node in loaded} & POSIX, path
    for name in POSIX:
        monkeypatch.setitem(sys.modules, name, None)
    runs = run([by_gamma(0.1)], journal=tmp_path / "runs.jsonl")
    runs.report("One market").write(tmp_path / "report")
    assert (tmp_path / "report" / "index.html").exists()
