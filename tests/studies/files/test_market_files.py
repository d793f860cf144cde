"""Test problem files of markets without a learner: markets, errors and runs."""

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.errors import DataError, ProblemFileError
from convexmarket.report import format_number
from convexmarket.studies.files import load_file, parse_file
from tests.studies.files.builders import for_each

BASE = """
kind = "market"
title = "Three sellers"
[sellers]
sensitivities = [1.0, 2.0, 3.0]
[prior]
family = "uniform"
low = 1.0
high = 5.0
[objective]
spread = { weight = 1.0 }
noise = { weight = 10.0 }
payments = { weight = 0.1 }
[constraints]
cap = 2
[[variants]]
name = "base"
"""
GROUPS = """{groups = [{name = "A", count = 4}, {name = "B", sensitivities = [1.5, 4.5]}]}"""
REPORTS = [1.0, 2.0, 3.0]
PRIOR = cm.Uniform(1, 5)


def one(changes: str, *overrides: str) -> cm.Market:
    """Return the market of a problem file with one variant, which is given as an inline table."""
    problem = parse_file(BASE, [f'variants=[{{name="x", {changes}}}]', *overrides])
    (point,) = problem.points()
    return point.market


def refusal(*overrides: str) -> str:
    with pytest.raises(ProblemFileError) as caught:
        parse_file(BASE, overrides, path="my.toml")
    return str(caught.value).removeprefix("my.toml: ")


SELLERS = cm.Sellers(REPORTS, PRIOR)
REST = 10.0 * cm.Noise() + 0.1 * cm.Payments()
STANDARD = cm.Spread() + REST
FREE = cm.Spread() + 10.0 * cm.Noise()
TIERS = cm.terms.TieredCost([1, 3], [0.5])


@for_each(
    [
        ("spread={p=3}", cm.Spread(3) + REST),
        ('spread={term="squared-spread", weight=3}', 3.0 * cm.terms.SquaredSpread() + REST),
        (
            "spread=false, negative-entropy={weight=2, reference=[0.2, 0.3, 0.5]}",
            REST + 2.0 * cm.terms.NegativeEntropy([0.2, 0.3, 0.5]),
        ),
        ('largest={term="spread", p=inf, weight=0.1}', STANDARD + 0.1 * cm.Spread(np.inf)),
        ("payments=false", FREE),
        (
            'payments={privacy_cost="exponential"}',
            FREE + 0.1 * cm.Payments(cm.terms.ExponentialCost()),
        ),
        (
            "payments={privacy_cost={slopes=[1, 3], thresholds=[0.5]}}",
            FREE + 0.1 * cm.Payments(TIERS),
        ),
        (
            'cvar={weight=2, level=0.25, of="payments"}',
            STANDARD + 2.0 * cm.terms.CVaR(0.25, "payments"),
        ),
        (
            'robust-costs={weight=2, kind="budget", radius=0.1, budget=1.5}',
            STANDARD + 2.0 * cm.terms.RobustCosts("budget", 0.1, 1.5),
        ),
    ]
)
def test_terms_of_a_file_equal_terms_in_python(changes, objective):
    market = one(f"objective={{{changes}}}")
    assert market.objective == objective
    assert repr(market) == repr(cm.Market(SELLERS, objective, [cm.Cap(2)]))


@for_each(
    [
        ("cap=false", []),
        ("cap=[1, 2, 1.5]", [cm.Cap([1, 2, 1.5])]),
        ("max_epsilon=[1, 0, 2]", [cm.Cap(2), cm.MaxEpsilon([1, 0, 2])]),
        ("eta_range=[1, 4]", [cm.Cap(2), cm.EtaRange(1, 4)]),
        (
            "moments={A=[[1, 2], [3, 4], [5, 9]], b=[2.5, 4.0], tol=[0, 0.5]}",
            [cm.Cap(2), cm.terms.Moments([[1, 2], [3, 4], [5, 9]], [2.5, 4.0], [0, 0.5])],
        ),
    ]
)
def test_constraints_of_a_file_equal_constraints_in_python(changes, constraints):
    assert one(f"constraints={{{changes}}}").constraints == tuple(constraints)


@for_each(
    [("at_most={A=0.7, B=0.9}", {"at_most": {"A": 0.7, "B": 0.9}}), ("equal=true", {"equal": True})]
)
def test_group_shares_of_a_file_equal_group_shares_in_python(share, arguments):
    market = one(f"sellers={GROUPS}, constraints={{group_share={{{share}}}}}")
    groups = np.array(["A"] * 4 + ["B"] * 2)
    assert market.constraints == (cm.Cap(2), cm.GroupShare(groups, **arguments))
    levels = np.random.default_rng(0).random(6)[:4]
    np.testing.assert_array_equal(market.sellers.sensitivities, [*PRIOR.quantile(levels), 1.5, 4.5])


def test_groups_can_have_different_priors():
    flat = '{family="uniform", low=0, high=1}'
    market = one(f'sellers={{groups=[{{name="A", count=3, prior={flat}}}, {{name="B", count=2}}]}}')
    levels = np.random.default_rng(0).random(5)
    reports = [*cm.Uniform(0, 1).quantile(levels[:3]), *PRIOR.quantile(levels[3:])]
    priors = {"A": cm.Uniform(0, 1), "B": PRIOR}
    expected = cm.Sellers(reports, priors, groups=list("AAABB"))
    np.testing.assert_array_equal(market.sellers.sensitivities, expected.sensitivities)
    np.testing.assert_array_equal(market.sellers.virtual_costs, expected.virtual_costs)
    assert repr(market.sellers) == repr(expected)


@for_each(
    [
        ("objective.spread.p=1", "objective.spread: p must be a number in [1.01, 40], or inf, got"),
        ("objective.spread.q=1", "objective.spread: 'q' is not a known key; known are"),
        ("objective.payments.privacy_csot=1", "known key; did you mean 'privacy_cost'?"),
        (
            'objective.robust-costs={weight=1, kind="bugdet", radius=0.1}',
            "objective.robust-costs: kind must be one of 'box', 'budget', 'ellip",
        ),
        (
            "constraints.moments={A=[[1], [2, 3]], b=[1]}",
            "constraints.moments: A is a list; give a",
        ),
        ("constraints.cap=0.5", "constraints.cap: cap is 0.5"),
        ("constraints.bugdet=1", "'bugdet' is not a known key; did you mean 'budget'?"),
        (
            'sellers={groups=[{name="A", count=1}, {name="A", count=2}]}',
            "sellers.groups: an entry is listed twice",
        ),
        ("run.misreports=1", "run.misreports must be greater than or equal to 2, got 1"),
        ('variants=[{name="a"}, {name="a"}]', "variants: an entry is listed twice"),
    ]
)
def test_errors_in_the_base_are_reported_once(override, expected):
    message = refusal(override)
    assert expected in message
    assert "variants[0]" not in message


@for_each(
    [
        ("objective={spread={p=0.5}}", ".objective.spread: p must be a number in [1.01, 40]"),
        ("objective={spred=false}", ".objective.spred: there is no spred to remove"),
        ('objective={a={term="spred", weight=1}}', ".objective.a: term is 'spred'; did"),
        ("objectiv={}", ": 'objectiv' is not a known key; did you mean 'objective'?"),
        ("constraints={cap=[1, 2]}", ": cap has 2 entries for 3 sellers"),
        ("constraints={group_share={equal=true}}", ": group_share needs groups"),
        (
            'sellers={file="s.csv"}, constraints={group_share={equal=true}}',
            ": group_share needs groups",
        ),
        (
            "objective={payments={privacy_cost={slopes=[1, 3]}}}",
            ".objective.payments: {'slopes': [1, 3]} is not a privacy cost; give",
        ),
        (
            f"sellers={GROUPS}, constraints={{group_share={{at_least={{C=0.1}}}}}}",
            ": at_least must be shares in [0, 1] of the groups 'A', 'B', got 'C'",
        ),
        ("sellers={sensitivities=[9.0]}", ": 1 of 1 sensitivities are not in the supp"),
        ("prior=false, constraints=false", ": the sellers have no prior"),
        (
            'sweep={key="constraints.budgt", values=[1, 2]}',
            ".constraints.budgt: 'budgt' is not a known key; did you mean 'budget'?",
        ),
        (
            'sweep={key="constraints.cap.x", values=[1, 2]}',
            ": constraints.cap.x: cap is not a table",
        ),
    ]
)
def test_errors_in_a_variant_name_the_variant(changes, expected):
    assert f"variants[0]{expected}" in refusal(f'variants=[{{name="x", {changes}}}]')


def test_required_keys_are_reported():
    text = 'kind = "market"\ntitle = "t"\n[[variants]]\nname = "a"\n'
    with pytest.raises(ProblemFileError) as caught:
        parse_file(text, path="my.toml")
    missing = ["my.toml: sellers is missing", "my.toml: objective is missing"]
    assert str(caught.value).splitlines() == missing
    with pytest.raises(ProblemFileError, match=r"the sellers have no prior; give \[prior\]"):
        parse_file("sellers = {count = 3}\nobjective = {noise = {weight = 1}}\n" + text)


# ------------------------------------------------------------------------------------- runs

SMALL = """
kind = "market"
title = "Small"
[sellers]
groups = [
    { name = "town", count = 12 },
    { name = "land", count = 8, prior = { family = "uniform", low = 2.0, high = 6.0 } },
]
[prior]
family = "uniform"
low = 1.0
high = 5.0
[objective]
spread = { weight = 1.0 }
noise = { weight = 1.0 }
payments = { weight = 0.02 }
[run]
jobs = 1
gap = 1e-5

[[variants]]
name = "plain"
[[variants]]
name = "fair"
constraints.group_share.at_least.land = 0.4
[[variants]]
name = "square"
objective.spread = { term = "squared-spread", weight = 5.0 }
objective.payments.privacy_cost = { power = 2 }
[[variants]]
name = "budget"
objective.payments = false
sweep = { key = "constraints.budget", values = [5, 20, 40] }
[[variants]]
name = "contradiction"
constraints.max_epsilon = 0.01
constraints.eta_range = [1.0, 2.0]
[[variants]]
name = "boundless"
objective.payments = false
"""

FAILED = {"contradiction": "infeasible", "boundless": "not attained"}


@pytest.fixture(scope="module")
def problem():
    return parse_file(SMALL)


@pytest.fixture(scope="module")
def result(problem):
    return problem.perform(progress=False)


def run_small(settings):
    return parse_file(SMALL, settings).perform(progress=False)


def test_failures_have_rows_with_their_messages(result):
    rows = result.tables["runs"].set_index("market")
    for name, status in FAILED.items():
        assert rows.status[name] == status
        assert rows.message[name]
        assert np.isnan(rows.objective[name])
    assert "0.01" in rows.message["contradiction"]


def test_a_file_gives_the_results_of_study(problem, result):
    points = problem.points()
    markets = {str(place): point.market for place, point in enumerate(points)}
    runs = cm.Study(markets).run(gap=1e-5, solver="CLARABEL", audits="none", progress=False)
    for name in ("runs", "sellers"):
        answer = result.tables[name].drop(columns=["market", "value", "seconds"], errors="ignore")
        stated = runs.tables[name].drop(columns=["market", "seconds"], errors="ignore")
        pd.testing.assert_frame_equal(answer, stated)
    assert result.tables["audits"].empty


def test_a_sweep_is_audited_at_its_middle_value():
    settings = [
        "sellers={count=4}",
        'run={jobs=1, payments="all", tol=0.01, audits="all", audit_sellers=2, misreports=2}',
        'variants=[{name="gamma", sweep={key="objective.payments.weight", values=[0.01, 0.1, 1]}}]',
    ]
    result = run_small(settings)
    assert result.tables["runs"].payments.notna().all()
    (audit,) = result.tables["audits"].itertuples()
    assert (audit.market, audit.value, audit.sellers_audited) == ("gamma", 0.1, 2)
    assert audit.incentive_compatible


def test_a_constraint_holds_and_increases_the_objective(result):
    rows = result.tables["runs"].set_index("market")
    shares = result.tables["groups"].set_index(["market", "group"]).share_of_weight
    assert shares["fair"]["land"] == pytest.approx(0.4, abs=1e-6)
    assert shares["plain"]["land"] < 0.4
    assert rows.objective["fair"] > rows.objective["plain"]
    sums = result.tables["groups"].groupby(["market", "value"], dropna=False).share_of_weight.sum()
    np.testing.assert_allclose(sums, 1.0)


def test_regular_priors_are_tabulated_only_if_another_prior_is_ironed(result):
    assert result.tables["virtual_costs"].empty
    prior = (
        '{family="mixture", weights=[0.5, 0.5], components=['
        '{family="uniform", low=1, high=3}, {family="uniform", low=2, high=6}]}'
    )
    settings = [f'variants=[{{name="each"}}, {{name="all", sellers={{count=9}}, prior={prior}}}]']
    answer = run_small(settings).tables["virtual_costs"]
    tabulated = answer.drop_duplicates(["market", "group"])
    assert list(zip(tabulated.market, tabulated.group, tabulated.regular, strict=True)) == [
        ("each", "town", True),
        ("each", "land", True),
        ("all", "", False),
    ]
    regular = answer[answer.regular]
    np.testing.assert_allclose(regular.raw, regular.ironed)


# ------------------------------------------------------------------------- sellers of a file

LISTED = """
kind = "market"
title = "Listed"
prior = {family = "uniform", low = 1, high = 5}
objective = {spread = {weight = 1.0}, noise = {weight = 2.0}, payments = {weight = 0.1}}
constraints = {group_share = {at_least = {south = 0.5}}}
sellers = {file = "asks.csv", id = "Patient Nr", report = "Preis je ε", group = "Region"}
"""
ROWS = ["p1;1,25;north", "p2;3,75;north", "p3;2,5;south", "p4;4,5;south"]


def listed(folder, text=LISTED, rows=ROWS):
    lines = ["Patient Nr;Preis je ε;Region", *rows]
    (folder / "asks.csv").write_text("\n".join(lines), encoding="utf-8")
    (folder / "market.toml").write_text(text, encoding="utf-8")
    return load_file(folder / "market.toml")


def test_sellers_of_a_csv_file_equal_those_in_the_problem(tmp_path):
    problem = listed(tmp_path)
    runs = problem.perform(progress=False)
    groups = """{groups = [{name = "north", sensitivities = [1.25, 3.75]},
        {name = "south", sensitivities = [2.5, 4.5]}]}"""
    setting = f"sellers={groups}".replace("\n", "")
    stated = parse_file(LISTED, [setting]).perform(progress=False)
    columns = ["objective", "eta", "epsilon_max", "expected_payments", "n_bought"]
    pd.testing.assert_frame_equal(runs.tables["runs"][columns], stated.tables["runs"][columns])
    pd.testing.assert_frame_equal(runs.tables["groups"], stated.tables["groups"])
    assert runs.tables["sellers"].id.tolist() == ["p1", "p2", "p3", "p4"]


@pytest.mark.parametrize(
    ("rows", "change", "error", "words"),
    [
        (["p1;9;north"], ("", ""), DataError, "outside the support [1, 5]"),
        (ROWS, ("Region", "Regoin"), DataError, "sellers.group in a file"),
        (ROWS, ("Region", "Patient Nr"), ProblemFileError, "must be different"),
        (ROWS, ('file = "asks.csv"', "count = 3"), ProblemFileError, "columns of a file"),
        (ROWS, (', group = "Region"', ""), ProblemFileError, "sellers.group"),
        (ROWS, ("asks", "none"), DataError, "No such file"),
    ],
)
def test_an_invalid_list_of_sellers_is_refused(rows, change, error, words, tmp_path):
    with pytest.raises(error) as refused:
        listed(tmp_path, LISTED.replace(*change), rows).perform(progress=False)
    assert words in str(refused.value)


def test_the_page_shows_findings_failures_and_claims(problem, result):
    report = problem.report(result)
    text = report.to_markdown()
    assert "6 of 8 runs were solved" in report.finding
    assert "“contradiction” has no answer: infeasible." in text
    claims = report.tables[0].frame.set_index("claim").verdict
    assert claims["Truthful prices exist by construction"] == "holds"


@pytest.mark.parametrize(
    ("sellers", "draws", "words"),
    [("count = 30", 4, ", n = 4), over draws"), ("sensitivities = [1.5, 2, 4]", 1, "(exact), for")],
)
def test_the_headline_compares_two_variants_over_draws_of_the_sellers(sellers, draws, words):
    text = f"""
kind = "market"
title = "Two gammas"
sellers.{sellers}
prior = {{ family = "uniform", low = 1, high = 5 }}
objective.spread = {{ weight = 1.0 }}
objective.noise = {{ weight = 1.0 }}
objective.payments = {{ weight = 0.1 }}
[run]
compare = {{ variant = "costly", base = "cheap", quantities = ["expected_payments"], draws = 4 }}
[[variants]]
name = "cheap"
[[variants]]
name = "costly"
objective.payments = {{ weight = 0.5 }}
"""
    problem = parse_file(text)
    runs = problem.perform(progress=False)
    table = runs.tables["draws"]
    assert table.groupby("market").draw.nunique().tolist() == [draws, draws]
    first = table[table.draw == 0].set_index("market").expected_payments
    markets = runs.tables["runs"].set_index("market").expected_payments
    pd.testing.assert_series_equal(first, markets)
    finding = problem.report(runs).finding
    wide = table.pivot(index="draw", columns="market", values="expected_payments")
    size = (wide.cheap - wide.costly).mean()
    assert f"The expected payment in “costly” is {format_number(size)} (" in finding
    assert "lower than that in “cheap”" in finding
    assert words in finding
