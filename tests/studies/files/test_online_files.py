"""Test problem files of kind "online": contents, and consistency of simulated markets."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import convexmarket as cm
from convexmarket.errors import DataError, NotSupportedError, ParameterError, ProblemFileError
from convexmarket.online import OnlinePolicy, run_online
from convexmarket.online.outcome import planned
from convexmarket.online.release import release_model
from convexmarket.priors import Uniform
from convexmarket.studies.files import parse_file
from convexmarket.studies.files.online_file import open_market
from convexmarket.studies.runs import Runs

SMALL = """
kind = "online"
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


def run(*settings):
    return parse_file(SMALL, settings).perform(progress=False)


@pytest.fixture(scope="module")
def result():
    return run()


# ------------------------------------------------------------------------------------- the file


def test_a_prior_and_buyer_without_a_valid_policy_are_refused():
    with pytest.raises(NotSupportedError, match="cap is 3"):
        parse_file(SMALL, ["buyer.rule='algorithm-3'"]).policy()


CSV = "data={source='csv', file='rows.csv', classes=[0, 1], features={age=[18, 100]}"


def test_a_file_states_whether_the_first_sellers_are_quoted_with_the_prior():
    policy = parse_file(SMALL, ["plan.learn=true", "plan.trust_guess=true"]).policy()
    assert policy.trust_guess


def test_errors_name_the_mistake():
    for setting, words in [
        ("buyer.expected_sellers=0", "buyer.expected_sellers must be greater than or"),
        ("buyer.cap=1", "buyer.cap must be greater than 1, got 1"),
        ("buyer.rule='algorithm3'", "buyer.rule is 'algorithm3'; did you mean 'algorithm-3'?"),
        ("simulation.acceptance=0.0", "simulation.acceptance must be greater than 0, got 0.0"),
        ("learner.regularization=[0.1]", "learner.regularization must be a valid number"),
        (CSV + ", label='age'}", "data: the feature 'age' is the label; omit it from features"),
        (CSV + ", label='ill', public={test=0.2}}", "public"),
    ]:
        with pytest.raises(ProblemFileError) as caught:
            parse_file(SMALL, [setting], path="my.toml")
        assert words in str(caught.value), setting
    with pytest.raises(ProblemFileError, match=r"simulation.arrivals is 61; give at most 60"):
        run("simulation.arrivals=61")
    with pytest.raises(ParameterError, match="no seller accepted an offer"):
        run("simulation={arrivals=1, acceptance=1e-12}")


# ----------------------------------------------------------------------------------- simulations


def test_every_seller_who_arrives_is_quoted_by_the_policy(result):
    offers, policy = result.tables["offers"], parse_file(SMALL).policy()
    assert list(offers.number) == list(range(1, 31))
    assert offers.id.is_unique
    assert set(offers.id) <= {f"row-{k}" for k in range(60)}
    epsilon, payment = policy.quote(offers.sensitivity.to_numpy())
    np.testing.assert_array_equal(offers.epsilon, epsilon)
    np.testing.assert_array_equal(offers.payment, payment)
    np.testing.assert_allclose(offers.virtual_cost, 2 * offers.sensitivity - 0.02)
    np.testing.assert_allclose(offers.surplus, payment - offers.sensitivity * epsilon)
    assert set(offers.status[offers.epsilon > 0]) == {"accepted", "declined"}
    accepted = run("simulation.acceptance=1.0").tables["offers"]
    assert "declined" not in set(accepted.status)
    assert list(accepted.id) == list(offers.id), "the answers use a separate random stream"


def test_guarantees_include_the_second_noise(result):
    offers, model = result.tables["offers"], result.facts["model"]
    accepted, others = (offers[(offers.status == "accepted") == sold] for sold in (True, False))
    assert (accepted.guarantee <= accepted.epsilon).all()
    assert 0 < model["epsilon_of_the_second_noise"] / accepted.epsilon.min() < 1e-3
    assert (accepted.guarantee / accepted.epsilon).max() == pytest.approx(1.0, rel=1e-9)
    assert (accepted.guarantee / accepted.epsilon).min() > 0.9
    assert (others[["guarantee", "weight"]] == 0).all(axis=None)
    np.testing.assert_allclose(accepted.weight, accepted.epsilon / accepted.epsilon.sum())
    assert model["eta"] == accepted.epsilon.sum()
    assert model["largest_excess_over_sold"] <= 0


def test_totals_and_losses_are_consistent(result):
    realised, expected = result.facts["realised"], result.facts["planned"]
    offers, counts = result.tables["offers"], result.facts["counts"]
    sold = offers[offers.status == "accepted"]
    eta = sold.epsilon.sum()
    fixed = np.linalg.norm(sold.weight) + 20.0 / eta
    assert realised["eta"] == pytest.approx(eta)
    assert realised["payments"] == pytest.approx(sold.payment.sum())
    assert realised["loss"] == pytest.approx(fixed + 0.02 * sold.virtual_cost @ sold.epsilon)
    assert realised["paid_loss"] == pytest.approx(fixed + 0.02 * sold.payment.sum())
    assert realised["largest_weight"] == pytest.approx(sold.weight.max())
    assert (realised["bought"], counts["quoted"], counts["turned away"]) == (len(sold), 30, 0)
    assert counts["accepted"] + counts["declined"] + counts["nothing bought"] == 30
    assert expected["largest_weight"] <= 3.0 / 40 * (1 + 1e-12)
    assert expected["eta"] == result.tables["plans"].eta[0]


def test_the_plan_equals_the_average_of_many_markets():
    policy = OnlinePolicy(Uniform(0.02, 0.10), 400, 1.0, 20.0, 0.02)
    rng, totals = np.random.default_rng(0), []
    for _ in range(300):
        outcome = run_online(policy, policy.prior.sample(400, rng))
        totals.append((outcome.n_bought, outcome.eta, outcome.payments.sum()))
    mean, spread = np.mean(totals, axis=0), np.std(totals, axis=0) / np.sqrt(300)
    expected = [planned(policy)[key] for key in ("bought", "eta", "payments")]
    assert (abs(mean - expected) < 4.5 * spread).all()


def test_new_plans_are_recorded_and_audited():
    runs = run("plan={replan=true, learn=true}", "simulation.arrivals=20")
    offers, plans, audits = (runs.tables[name] for name in ("offers", "plans", "audits"))
    assert list(plans.after) == [0, 10, 15]
    assert (offers.groupby("plan").number.min() == plans.set_index("plan").after + 1).all()
    assert set(audits.plan) == set(plans.plan)
    assert audits[["incentive_compatible", "individually_rational"]].all(axis=None)
    assert any("learnt" in words for words in runs.facts["caveats"])


def test_results_are_reproducible_and_can_be_read(result, tmp_path):
    result.write(tmp_path)
    for again in (run(), Runs.read(tmp_path)):
        for name, table in result.tables.items():
            pd.testing.assert_frame_equal(table, again.tables[name])
        assert again.facts == result.facts
        assert repr(again).endswith("'online', 30 rows: offers, plans, curves, audits, draws>")
    assert run("run.seed=1").facts["model"] != result.facts["model"]


def test_a_simulation_resumes_from_its_journal(result, tmp_path):
    journal = tmp_path / "runs.jsonl"
    problem = parse_file(SMALL, ["simulation.draws=2"])
    first = problem.perform(journal=journal, progress=False)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0])
    again = problem.perform(journal=journal, progress=False)
    assert journal.read_bytes().splitlines(keepends=True)[0] == lines[0]
    assert len(journal.read_bytes().splitlines()) == 2
    for name, table in first.tables.items():
        pd.testing.assert_frame_equal(table, again.tables[name])
    pd.testing.assert_frame_equal(again.tables["offers"], result.tables["offers"])
    assert first.facts == again.facts


def test_more_draws_give_intervals_and_do_not_change_the_first_market(result):
    more = run("simulation.draws=3")
    for name in ("offers", "plans", "curves", "audits"):
        pd.testing.assert_frame_equal(more.tables[name], result.tables[name])
    draws = more.tables["draws"]
    pd.testing.assert_frame_equal(draws.iloc[:1], result.tables["draws"])
    assert draws.eta.nunique() == 3
    assert draws.error.iloc[0] == result.facts["model"]["test"]["error"]
    finding = more.statements()[0]
    assert finding.startswith("The privacy sold in a simulated market is ")
    assert finding.count("n = 3") == 2


def test_the_report_contains_the_finding_and_the_model(result, tmp_path):
    report = parse_file(SMALL).report(result)
    assert report.finding.startswith("In one simulated market ")
    assert "the error of the model is" in report.finding
    assert [table.name for table in report.tables][:2] == ["claims", "comparison"]
    page = report.write(tmp_path / "report")
    model = json.loads((page.parent / "model.json").read_text())
    assert model == result.facts["model"]
    assert model["test"]["rows"] == 50


# ------------------------------------------------------------------------------ rows and release


OWN = "data={source='csv', file='rows.csv', label='ill', classes=[0, 1], features={x=[-1, 1]}}"


def clinic(folder, rows, *settings):
    (folder / "rows.csv").write_text(rows)
    return parse_file(SMALL, [OWN, *settings], path=str(folder / "market.toml"))


def release(problem, accepted, **options):
    model = release_model(problem.classifier(), problem.market_rows(), accepted, **options)
    return json.loads(model)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("d;young;north;0", "line 5: the cell in column 'age' is"),
        ("d;44;;0", "line 5: the cell in column 'ward' is empty"),
        ("d;44;north;2", "line 5: the cell in column 'ill' is neither of the classes"),
        ("a;44;north;0", "line 5: 'a' is the id of an earlier seller"),
    ],
)
def test_errors_name_file_line_and_column_of_a_row(tmp_path, row, words):
    rows = "id;age;ward;ill\na;20,0;north;0\nb;42,5;south;1\nc;90,0;south;1\n"
    problem = clinic(tmp_path, rows + row, "data.features={age=[20, 80], ward=['north', 'south']}")
    with pytest.raises(DataError) as caught:
        problem.market_rows()
    assert str(caught.value).startswith(f"{tmp_path / 'rows.csv'}: {words}")


def test_classes_are_compared_as_numbers_and_ids_in_normal_form(tmp_path):
    rows = clinic(tmp_path, "ill;id;x\n1.0;Zoe\u0308;0,5\n0;b;-0,5\n").market_rows()
    assert rows.ids == ["Zo\u00eb", "b"]
    np.testing.assert_array_equal(rows.y, [1.0, -1.0])
    assert rows.y_test.size == 0


def test_a_release_draws_fresh_noise_unless_it_is_seeded(tmp_path):
    lines = [f"s{k},{0.5 - k % 2},{k % 2}\n" for k in range(8)]
    problem = clinic(tmp_path, "id,x,ill\n" + "".join(lines))
    sold = pd.DataFrame({"id": [f"s{k}" for k in range(8)], "epsilon": np.linspace(0.5, 1, 8)})
    released = [release(problem, sold) for _ in range(3)]
    assert len({each["coef"][0] for each in released}) == 3
    assert release(problem, sold, seed=SEED) == release(problem, sold, seed=SEED)
    # All digits of the model are published, so the guarantee must not assume an exact minimiser.
    assert "exact noise on a lattice" in released[0]["mechanism"]
    assert not any("exact minimiser" in words for words in released[0]["assumptions"])
    assert released[0]["guarantees"]["s0"] == pytest.approx(0.5)


@pytest.mark.parametrize("seed", [None, SEED])
def test_only_a_simulation_measures_the_model_without_noise(tmp_path, seed):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) / 5
    y = (X[:, 0] + 0.1 * rng.normal(size=60) > 0).astype(int)
    lines = [f"s{k},{a},{b},{ill}" for k, ((a, b), ill) in enumerate(zip(X, y, strict=True))]
    (tmp_path / "public.csv").write_text("\n".join(["id,x,z,ill", *lines[40:]]), encoding="utf-8")
    settings = ["data.features={x=[-1, 1], z=[-1, 1]}", "data.public={test='public.csv'}"]
    problem = clinic(tmp_path, "\n".join(["id,x,z,ill", *lines[:40]]), *settings)
    X = cm.PublicFeatures({"x": (-1, 1), "z": (-1, 1)}).transform({"x": X[:, 0], "z": X[:, 1]})
    sold = pd.DataFrame({"id": [f"s{k}" for k in range(40)], "epsilon": np.linspace(1, 8, 40)})
    released = release(problem, sold, seed=seed)
    scores = X[40:] @ released["coef"]
    assert released["test"]["auc"] == pytest.approx(roc_auc_score(y[40:], scores))
    assert released["test"]["error"] == np.mean((scores > 0) != y[40:])
    if seed is None:
        assert "without_noise" not in released["test"]
        return
    plain = LogisticRegression(C=1 / released["regularization"], fit_intercept=False, tol=1e-10)
    plain.fit(X[:40], y[:40], sample_weight=sold.epsilon / sold.epsilon.sum())
    measured = released["test"]["without_noise"]
    assert measured["error"] == np.mean(plain.predict(X[40:]) != y[40:])
    auc = roc_auc_score(y[40:], plain.decision_function(X[40:]))
    assert measured["auc"] == pytest.approx(auc, abs=1e-12)


def test_public_rows_are_checked_before_a_market_opens(tmp_path):
    (tmp_path / "test.csv").write_text("x,ill\ntall,0\n")
    problem = clinic(tmp_path, "", "data.public={test='test.csv'}")
    assert problem.place(problem.data.file) == Path(tmp_path, "rows.csv")
    with pytest.raises(DataError, match=r"line 2: the cell in column 'x' is"):
        open_market(problem, tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_sellers_of_a_csv_file_are_quoted_at_their_reports(tmp_path):
    asks = np.linspace(0.02, 0.1, 30)
    lines = [f"p{k};0,{k % 7};{str(ask).replace('.', ',')};{k % 2}" for k, ask in enumerate(asks)]

    def simulated(lines):
        rows = "\n".join(["id;x;ask;ill", *lines])
        return clinic(tmp_path, rows, "data.report='ask'").perform(progress=False)

    offers = simulated(lines).tables["offers"].set_index("id").sensitivity
    expected = pd.Series(asks, [f"p{k}" for k in range(30)])
    np.testing.assert_array_equal(offers, expected[offers.index])
    with pytest.raises(DataError, match="line 3: the report is outside"):
        simulated([lines[0], "p1;0,1;7;0", *lines[2:]])
