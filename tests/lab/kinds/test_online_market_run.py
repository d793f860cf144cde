"""A simulated online market: the same steps as a real one, and numbers that add up."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import convexmarket as cm
from convexmarket.errors import DataError, ParameterError, ProblemFileError
from convexmarket.lab import report_of, run_problem
from convexmarket.lab.kinds.online_market.market import (
    online_policy,
    open_market,
)
from convexmarket.lab.kinds.online_market.rows import owned_rows
from convexmarket.lab.kinds.online_market.run import run_online_market
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.result import Result
from convexmarket.online import OnlinePolicy, run_online
from convexmarket.online.outcome import planned
from convexmarket.online.release import model_guarantee, release_model
from convexmarket.priors import Exponential, Uniform

SMALL = """
kind = "online-market"
title = "A small market"
[prior]
family = "uniform"
low = 0.02
high = 0.10
[buyer]
expected_sellers = 40
mu = 1.0
sigma = 20.0
gamma = 0.02
cap = 3.0
[data]
source = "synthetic"
n_sellers = 60
n_features = 3
n_validation = 10
n_test = 50
[learner]
regularization = 0.5
[simulation]
arrivals = 30
acceptance = 0.7
"""
SEED = np.random.SeedSequence(3)


def release(problem, accepted, **options):
    return release_model(problem.classifier(), owned_rows(problem), accepted, **options)


def run(*overrides: str) -> Result:
    return run_online_market(parse_problem(SMALL, overrides))


@pytest.fixture(scope="module")
def result() -> Result:
    return run()


def test_everyone_who_comes_is_quoted_by_the_policy(result):
    offers, policy = result.tables["offers"], online_policy(result.problem)
    assert list(offers.number) == list(range(1, 31))
    assert offers.id.is_unique
    assert set(offers.id) <= {f"row-{k}" for k in range(60)}
    epsilon, payment = policy.quote(offers.sensitivity.to_numpy())
    np.testing.assert_array_equal(offers.epsilon, epsilon)
    np.testing.assert_array_equal(offers.payment, payment)
    np.testing.assert_allclose(offers.virtual_cost, 2 * offers.sensitivity - 0.02)
    np.testing.assert_allclose(offers.surplus, payment - offers.sensitivity * epsilon)
    assert result.numbers["fraction"] == 0.75


def test_answers_are_as_likely_as_the_file_says(result):
    offered = result.tables["offers"][result.tables["offers"].epsilon > 0]
    assert {"accepted", "declined"} == set(offered.status)
    everybody = run("simulation.acceptance=1.0")
    assert "declined" not in set(everybody.tables["offers"].status)
    # answers have seeds of their own
    assert list(everybody.tables["offers"].id) == list(result.tables["offers"].id)


def test_the_model_keeps_what_was_sold_the_second_noise_included(result):
    accepted = result.tables["offers"][result.tables["offers"].status == "accepted"]
    others = result.tables["offers"][result.tables["offers"].status != "accepted"]
    assert (accepted.guarantee <= accepted.epsilon).all()
    share = result.numbers["model"]["epsilon_of_the_second_noise"] / accepted.epsilon.min()
    assert 0 < share < 1e-3
    assert (accepted.guarantee / accepted.epsilon).max() == pytest.approx(1.0, rel=1e-9)
    assert (accepted.guarantee / accepted.epsilon).min() > 0.9
    assert (others.guarantee == 0).all()
    assert (others.weight == 0).all()
    np.testing.assert_allclose(accepted.weight, accepted.epsilon / accepted.epsilon.sum())
    assert result.numbers["model"]["eta"] == accepted.epsilon.sum()
    assert result.numbers["model"]["largest_excess_over_sold"] <= 0


def test_totals_and_losses_add_up(result):
    realised, planned_ = result.numbers["summary"]["realised"], result.numbers["summary"]["planned"]
    sold = result.tables["offers"][result.tables["offers"].status == "accepted"]
    weights, eta = sold.weight.to_numpy(), sold.epsilon.sum()
    fixed = np.linalg.norm(weights) + 20.0 / eta
    assert realised["eta"] == pytest.approx(eta)
    assert realised["payments"] == pytest.approx(sold.payment.sum())
    assert realised["loss"] == pytest.approx(fixed + 0.02 * sold.virtual_cost @ sold.epsilon)
    assert realised["paid_loss"] == pytest.approx(fixed + 0.02 * sold.payment.sum())
    assert realised["largest_weight"] == pytest.approx(weights.max())
    assert realised["bought"] == len(sold)
    counts = result.numbers["summary"]["counts"]
    assert counts["quoted"] == 30
    parts = counts["accepted"] + counts["declined"] + counts["nothing bought"]
    assert parts == counts["quoted"]
    assert counts["turned away"] == 0
    assert result.numbers["summary"]["weight_limit"] == 3.0 / 40
    assert planned_["largest_weight"] <= 3.0 / 40 * (1 + 1e-12)
    assert planned_["eta"] == result.tables["plans"].eta[0]
    # Fewer sellers than planned weigh more each, by the ratio of the totals.
    factor = planned_["eta"] / realised["eta"]
    assert realised["largest_weight"] == pytest.approx(
        realised["largest_epsilon"] / planned_["eta"] * factor
    )


def test_what_is_planned_is_what_many_markets_do_on_average():
    policy = OnlinePolicy(Uniform(0.02, 0.10), 400, 1.0, 20.0, 0.02)
    rng, totals = np.random.default_rng(0), []
    for _ in range(300):
        outcome = run_online(policy, policy.prior.sample(400, rng))
        totals.append((outcome.n_bought, outcome.eta, outcome.payments.sum()))
    mean, spread = np.mean(totals, axis=0), np.std(totals, axis=0) / np.sqrt(300)
    expected = planned(policy)
    for value, key, error in zip(mean, ("bought", "eta", "payments"), spread, strict=True):
        assert abs(value - expected[key]) < 4.5 * error


@pytest.mark.parametrize("prior", [Uniform(1, 5), Uniform(0, 4), Exponential(0.5)])
@pytest.mark.parametrize("gamma", [1e-6, 0.1, 10.0])
def test_the_highest_sensitivity_is_the_last_that_sells(prior, gamma):
    policy = OnlinePolicy(prior, 100, 1.0, 1.0, gamma)
    highest = policy.highest_sensitivity
    assert policy.quote(highest).epsilon > 0
    above = np.nextafter(highest, np.inf)
    if above <= prior.support[1]:
        assert policy.quote(above * (1 + 1e-12)).epsilon == 0


def test_more_than_expected_are_turned_away():
    found = run("simulation.arrivals=50")
    assert len(found.tables["offers"]) == 40
    assert found.numbers["summary"]["counts"]["turned away"] == 10
    assert found.numbers["fraction"] == 1.0


def test_new_plans_are_recorded_and_audited():
    found = run("plan={replan=true, learn=true, first=8, growth=2.0}", "simulation.arrivals=20")
    assert list(found.tables["plans"].after) == [0, 8, 16]
    for plan, rows in found.tables["offers"].groupby("plan"):
        start = found.tables["plans"].after[found.tables["plans"].plan == plan].iloc[0]
        assert rows.number.min() == start + 1
    assert set(found.tables["audits"]["plan"]) == set(found.tables["plans"]["plan"])
    assert found.tables["audits"].incentive_compatible.all()
    assert found.tables["audits"].individually_rational.all()
    assert any("learnt" in words for words in found.caveats)


def test_the_same_file_gives_the_same_market(result):
    again = run_problem(parse_problem(SMALL))
    for name in ("offers", "plans", "curves", "audits"):
        pd.testing.assert_frame_equal(result.tables[name], again.tables[name])
    assert again.numbers["model"] == result.numbers["model"]
    assert run("run.seed=1").numbers["model"] != result.numbers["model"]


def test_errors_are_measured_on_public_rows_only(result):
    assert result.numbers["model"]["test"]["rows"] == 50
    inline = "data={source='inline', features=[[0.5], [-0.5]], labels=[1, -1]}"
    alone = run(inline, "simulation={acceptance=1.0}", "buyer.expected_sellers=2")
    assert alone.numbers["model"]["test"] is None


def test_progress_is_reported():
    seen = []
    run_online_market(parse_problem(SMALL), lambda *step: seen.append(step))
    assert ("quote and answer", 30, 30) in seen
    assert ("train", 1, 1) in seen


def test_more_arrivals_than_rows_are_refused():
    data = "data={source='wdbc', train_fraction=0.05, validation_fraction=0.9}"
    with pytest.raises(ProblemFileError, match=r"simulation.arrivals is 30, and the data have"):
        run(data)


def test_a_market_that_sells_nothing_says_so():
    with pytest.raises(ParameterError, match="nobody accepted an offer"):
        run("simulation={arrivals=1, acceptance=1e-12}")


# ------------------------------------------------------------------------------ rows and release


OWN = "data={source='csv', file='rows.csv', label='ill', classes=[0, 1], features={x=[-1, 1]}}"
#: What is public of the columns that :func:`mixed` writes.
MIXED = "data.features={age=[20, 80], ward=['north', 'south']}"


def clinic(folder, rows: str, *overrides: str):
    (folder / "rows.csv").write_text(rows)
    return parse_problem(SMALL, [OWN, *overrides], path=str(folder / "market.toml"))


def mixed(folder, source: str):
    """Return a market of rows with a number and a category, in a file of this format."""
    table = pd.DataFrame({"id": list("abc"), "age": [20.0, 42.5, 90.0]})
    table["ward"], table["ill"] = ["north", "south", "south"], [0, 1, 1]
    if source == "parquet":
        table.to_parquet(folder / "rows.parquet")
    else:
        table.to_csv(folder / "rows.csv", index=False, sep=";", decimal=",")
    told = [OWN, MIXED, f"data.source='{source}'", f"data.file='rows.{source}'"]
    return parse_problem(SMALL, told, path=str(folder / "market.toml"))


def test_ranges_and_categories_make_the_same_rows_of_csv_and_parquet(tmp_path):
    problems = [mixed(tmp_path, source) for source in ("csv", "parquet")]
    of_csv, of_parquet = map(owned_rows, problems)
    assert of_csv.ids == of_parquet.ids == list("abc")
    assert of_csv.feature_names == ("age", "ward=north", "ward=south", "intercept")
    np.testing.assert_allclose(
        np.sqrt(3) * of_csv.X, [[-1, 1, 0, 1], [-0.25, 0, 1, 1], [1, 0, 1, 1]]
    )
    np.testing.assert_array_equal(of_csv.X, of_parquet.X)
    np.testing.assert_array_equal(of_csv.y, of_parquet.y)
    sold = pd.DataFrame({"id": list("abc"), "epsilon": [4.0, 8.0, 6.0]})
    one, other = (json.loads(release(problem, sold, seed=SEED)) for problem in problems)
    assert one["coef"] == other["coef"]
    declared = one["public_features"]
    columns = {name: tuple(public) for name, public in declared.pop("columns").items()}
    assert columns == {"age": (20, 80), "ward": ("north", "south")}
    assert cm.PublicFeatures({"age": (20, 80), "ward": ["north", "south"]}).get_params() == {
        **declared,
        "columns": {"age": (20, 80), "ward": ["north", "south"]},
    }


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("d;young;north;0", "line 5: the cell of the column 'age' of 'd' is no finite number"),
        ("d;44;;0", "line 5: the cell of the column 'ward' of 'd' is empty"),
        ("d;44;north;2", "line 5: the cell of the column 'ill' of 'd' is none of the classes"),
        ("a;44;north;0", "line 5: 'a' is the id of an earlier line"),
    ],
)
def test_a_bad_row_is_named_by_file_line_and_column(tmp_path, row, said):
    problem = mixed(tmp_path, "csv")
    with (tmp_path / "rows.csv").open("a") as file:
        file.write(row + "\n")
    with pytest.raises(DataError) as caught:
        owned_rows(problem)
    assert str(caught.value).startswith(f"{tmp_path / 'rows.csv'}: {said}")


def test_classes_that_are_numbers_are_compared_as_numbers(tmp_path):
    rows = owned_rows(clinic(tmp_path, "ill;id;x\n1.0;a;0,5\n0;b;-0,5\n"))
    assert rows.ids == ["a", "b"]
    np.testing.assert_array_equal(rows.y, [1.0, -1.0])
    assert rows.y_test.size == 0


def test_rows_follow_the_ids_and_not_the_file(tmp_path):
    rows = owned_rows(clinic(tmp_path, "id,x,ill\na,0.1,0\nb,0.2,1\nc,0.3,0\n"))
    X, y = rows.of(["c", "a"])
    np.testing.assert_allclose(np.sqrt(2) * X, [[0.3, 1.0], [0.1, 1.0]])
    np.testing.assert_array_equal(y, [-1.0, -1.0])


def test_ids_are_compared_in_one_form_of_unicode(tmp_path):
    rows = owned_rows(clinic(tmp_path, "id,x,ill\nZoe\u0308,0.1,0\n"))
    assert rows.ids == ["Zo\u00eb"]


def test_a_release_is_noise_around_the_same_answer(tmp_path):
    problem = clinic(
        tmp_path, "id,x,ill\n" + "".join(f"s{k},{0.5 - k % 2},{k % 2}\n" for k in range(8))
    )
    sold = pd.DataFrame({"id": [f"s{k}" for k in range(8)], "epsilon": np.linspace(1, 8, 8)})
    coefs = [json.loads(release(problem, sold))["coef"][0] for _ in range(3)]
    assert len(set(coefs)) == 3  # a fresh seed each time
    seeded = [release(problem, sold, seed=SEED) for _ in range(2)]
    assert seeded[0] == seeded[1]


@pytest.mark.parametrize("seed", [None, SEED])
def test_only_a_simulation_tells_what_the_model_is_without_noise(tmp_path, seed):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) / 5
    y = (X[:, 0] + 0.1 * rng.normal(size=60) > 0).astype(int)
    lines = [f"s{k},{a},{b},{ill}" for k, ((a, b), ill) in enumerate(zip(X, y, strict=True))]
    (tmp_path / "public.csv").write_text("\n".join(["id,x,z,ill", *lines[40:]]), encoding="utf-8")
    told = ["data.features={x=[-1, 1], z=[-1, 1]}", "data.test='public.csv'"]
    problem = clinic(tmp_path, "\n".join(["id,x,z,ill", *lines[:40]]), *told)
    X = cm.PublicFeatures({"x": (-1, 1), "z": (-1, 1)}).transform({"x": X[:, 0], "z": X[:, 1]})
    sold = pd.DataFrame({"id": [f"s{k}" for k in range(40)], "epsilon": np.linspace(1, 8, 40)})
    released = json.loads(release(problem, sold, seed=seed))
    scores = X[40:] @ released["coef"]
    pairs = np.sign(scores[y[40:] == 1][:, None] - scores[y[40:] == 0])
    assert released["test"]["auc"] == pytest.approx((1 + pairs.mean()) / 2)
    assert released["test"]["error"] == np.mean((scores > 0) != y[40:])
    if seed is None:
        assert "without_noise" not in released["test"]
        return
    plain = LogisticRegression(C=1 / released["regularization"], fit_intercept=False, tol=1e-10)
    plain.fit(X[:40], y[:40], sample_weight=sold.epsilon / sold.epsilon.sum())
    told = released["test"]["without_noise"]
    assert told["error"] == np.mean(plain.predict(X[40:]) != y[40:])
    assert told["auc"] == pytest.approx(
        roc_auc_score(y[40:], plain.decision_function(X[40:])), abs=1e-12
    )


def test_a_close_does_not_rest_on_a_perfect_solver(tmp_path):
    """All digits of the coefficients are published, so that the guarantee may not assume any."""
    rows = "id,x,ill\n" + "".join(f"s{k},{0.5 - k % 2},{k % 2}\n" for k in range(8))
    sold = pd.DataFrame({"id": [f"s{k}" for k in range(8)], "epsilon": np.linspace(0.5, 1, 8)})
    released = json.loads(release(clinic(tmp_path, rows), sold))
    assert "exact noise on a lattice" in released["mechanism"]
    assert not any("exact minimiser" in words for words in released["assumptions"])
    assert released["largest_excess_over_sold"] <= 0
    assert released["guarantees"]["s0"] == pytest.approx(0.5)


def test_what_the_learner_adds_is_said_where_the_file_asks_for_it(tmp_path):
    rows = "id,x,ill\na,0.5,0\nb,-0.5,1\n"
    sold = pd.DataFrame({"id": ["a", "b"], "epsilon": [0.5, 1.0]})
    loose = clinic(tmp_path, rows, "learner={regularization=0.01, calibration='noise'}")
    assert json.loads(release(loose, sold))["largest_excess_over_sold"] > 0
    strict = clinic(tmp_path, rows, "learner={regularization=0.01}")
    with pytest.raises(ParameterError, match="--regularization"):
        model_guarantee(strict.classifier(), sold)


def test_a_market_needs_public_rows_that_can_be_read_before_it_opens(tmp_path):
    (tmp_path / "test.csv").write_text("x,ill\ntall,0\n")
    problem = clinic(tmp_path, "", "data.test='test.csv'")
    with pytest.raises(DataError, match=r"line 2: the cell of the column 'x' is no finite number"):
        open_market(problem, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_sellers_of_a_file_are_quoted_by_their_own_reports(tmp_path):
    asks = np.linspace(0.02, 0.1, 30)
    lines = [f"p{k};0,{k % 7};{str(ask).replace('.', ',')};{k % 2}" for k, ask in enumerate(asks)]

    def problem(lines):
        return clinic(tmp_path, "\n".join(["id;x;ask;ill", *lines]), "data.report='ask'")

    result = run_online_market(problem(lines))
    offers = result.tables["offers"].set_index("id").sensitivity
    expected = pd.Series(asks, [f"p{k}" for k in range(30)])
    np.testing.assert_array_equal(offers, expected[offers.index])
    page = report_of(result).to_markdown()
    assert "**In this simulated market" in page
    with pytest.raises(DataError, match="line 3: the report of 'p1' is outside"):
        run_online_market(problem([lines[0], "p1;0,1;7;0", *lines[2:]]))
