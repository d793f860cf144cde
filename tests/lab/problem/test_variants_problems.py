"""Problem files of kind "variants": what they say, what they are merged to, what is refused."""

import jsonschema
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import ProblemFileError
from convexmarket.lab.kinds.variants.problem import VariantsProblem
from convexmarket.lab.problem.loading import json_schema, parse_problem
from tests import ROOT
from tests.lab.problem.builders import for_each

BASE = """
kind = "variants"
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
GUIDE = ROOT / "docs" / "howto" / "problem-files.md"
REPORTS = [1.0, 2.0, 3.0]
PRIOR = cm.Uniform(1, 5)
SIGMA = [[2, 1, 0], [1, 2, 0], [0, 0, 1]]


def one(changes: str, *overrides: str) -> cm.Market:
    """Return the market of a single variant, the changes written as an inline table."""
    problem = parse_problem(BASE, [f'variants=[{{name="x", {changes}}}]', *overrides])
    (variant,) = problem.variants
    (table,) = variant.markets
    return table.build(problem.run.seed)


def refusal(*overrides: str) -> str:
    with pytest.raises(ProblemFileError) as caught:
        parse_problem(BASE, overrides, path="my.toml")
    return str(caught.value).removeprefix("my.toml: ")


def refused(changes: str) -> str:
    return refusal(f'variants=[{{name="x", {changes}}}]')


SELLERS = cm.Sellers(REPORTS, PRIOR)
STANDARD = 1.0 * cm.Spread() + 10.0 * cm.Noise() + 0.1 * cm.Payments()


def test_a_variant_without_changes_is_the_base():
    market = one("objective={}")
    expected = cm.Market(SELLERS, STANDARD, [cm.Cap(2)])
    assert repr(market) == repr(expected)
    assert cm.allocate(market).objective == cm.allocate(expected).objective


@for_each(
    [
        ("objective={spread={p=3}}", 1.0 * cm.Spread(3) + 10.0 * cm.Noise() + 0.1 * cm.Payments()),
        (
            "objective={spread={p=inf, weight=2}}",
            2.0 * cm.Spread(np.inf) + 10.0 * cm.Noise() + 0.1 * cm.Payments(),
        ),
        (
            'objective={spread={term="squared-spread", weight=3}}',
            3.0 * cm.terms.SquaredSpread() + 10.0 * cm.Noise() + 0.1 * cm.Payments(),
        ),
        (
            "objective={spread=false, negative-entropy={weight=0.5}}",
            10.0 * cm.Noise() + 0.1 * cm.Payments() + 0.5 * cm.terms.NegativeEntropy(),
        ),
        (
            'objective={largest={term="spread", p=inf, weight=0.1}}',
            STANDARD + 0.1 * cm.Spread(np.inf),
        ),
        (
            'objective={payments={privacy_cost="exponential"}}',
            1.0 * cm.Spread() + 10.0 * cm.Noise() + 0.1 * cm.Payments(cm.terms.ExponentialCost()),
        ),
        (
            "objective={payments={privacy_cost={power=1.5}, weight=2}}",
            1.0 * cm.Spread() + 10.0 * cm.Noise() + 2.0 * cm.Payments(cm.PowerCost(1.5)),
        ),
        ("objective={payments=false}", 1.0 * cm.Spread() + 10.0 * cm.Noise()),
        (
            "objective={payments={privacy_cost={slopes=[1, 3], thresholds=[0.5]}}}",
            1.0 * cm.Spread()
            + 10.0 * cm.Noise()
            + 0.1 * cm.Payments(cm.terms.TieredCost([1, 3], [0.5])),
        ),
        (
            "objective={spread={p=3, reference=[0.2, 0.3, 0.5]}}",
            1.0 * cm.Spread(3, [0.2, 0.3, 0.5]) + 10.0 * cm.Noise() + 0.1 * cm.Payments(),
        ),
        *(
            (f"objective={{{name}={{weight=2{keys}}}}}", STANDARD + 2.0 * term)
            for name, keys, term in [
                ("squared-noise", "", cm.terms.SquaredNoise()),
                (
                    "negative-entropy",
                    ", reference=[0.2, 0.3, 0.5]",
                    cm.terms.NegativeEntropy([0.2, 0.3, 0.5]),
                ),
                (
                    "quadratic-spread",
                    ", Sigma=[[2, 1, 0], [1, 2, 0], [0, 0, 1]]",
                    cm.terms.QuadraticSpread(SIGMA),
                ),
                ("cvar", ", level=0.5", cm.terms.CVaR(0.5)),
                ("cvar", ', level=0.25, of="payments"', cm.terms.CVaR(0.25, "payments")),
                (
                    "robust-costs",
                    ', kind="box", radius=[0, 0.1, 0.2]',
                    cm.terms.RobustCosts("box", [0, 0.1, 0.2]),
                ),
                (
                    "robust-costs",
                    ', kind="budget", radius=0.1, budget=1.5',
                    cm.terms.RobustCosts("budget", 0.1, 1.5),
                ),
                (
                    "robust-costs",
                    ', kind="ellipsoid", radius=0.1',
                    cm.terms.RobustCosts("ellipsoid", 0.1),
                ),
            ]
        ),
    ],
)
def test_terms_are_those_of_python(changes, objective):
    market = one(changes)
    assert market.objective == objective
    assert repr(market) == repr(cm.Market(SELLERS, objective, [cm.Cap(2)]))


@for_each(
    [
        ("constraints={cap=false}", []),
        ("constraints={cap=3}", [cm.Cap(3)]),
        ("constraints={cap=[1, 2, 1.5]}", [cm.Cap([1, 2, 1.5])]),
        ("constraints={max_epsilon=0.5}", [cm.Cap(2), cm.MaxEpsilon(0.5)]),
        ("constraints={max_epsilon=[1, 0, 2]}", [cm.Cap(2), cm.MaxEpsilon([1, 0, 2])]),
        ("constraints={given_epsilon=[1, 0, 2]}", [cm.Cap(2), cm.terms.GivenEpsilon([1, 0, 2])]),
        ("constraints={budget=20}", [cm.Cap(2), cm.Budget(20)]),
        ("constraints={eta_range=[1, 4]}", [cm.Cap(2), cm.EtaRange(1, 4)]),
        ("constraints={effective_size=2}", [cm.Cap(2), cm.terms.EffectiveSize(2)]),
        (
            "constraints={moments={A=[[1, 2], [3, 4], [5, 9]], b=[2.5, 4.0], tol=[0, 0.5]}}",
            [cm.Cap(2), cm.terms.Moments([[1, 2], [3, 4], [5, 9]], [2.5, 4.0], [0, 0.5])],
        ),
    ],
)
def test_constraints_are_those_of_python(changes, constraints):
    market = one(changes)
    assert market.constraints == tuple(constraints)
    assert len(market.constraints) == len(constraints)
    for found, expected in zip(market.constraints, constraints, strict=True):
        assert type(found) is type(expected)


@for_each(
    [
        ("at_least={A=0.2}", {"at_least": {"A": 0.2}}),
        ("at_most={A=0.7, B=0.9}", {"at_most": {"A": 0.7, "B": 0.9}}),
        ("equal=true", {"equal": True}),
    ],
)
def test_shares_of_groups_are_those_of_python(share, arguments):
    market = one(f"sellers={GROUPS}, constraints={{group_share={{{share}}}}}")
    groups = np.array(["A"] * 4 + ["B"] * 2)
    assert market.constraints == (cm.Cap(2), cm.GroupShare(groups, **arguments))
    levels = np.random.default_rng(0).random(6)[:4]
    np.testing.assert_array_equal(market.sellers.sensitivities, [*PRIOR.quantile(levels), 1.5, 4.5])


def test_fairness_is_about_the_groups_of_the_sellers():
    market = one(f"sellers={GROUPS}, objective={{fairness={{weight=3}}}}")
    groups = np.array(["A"] * 4 + ["B"] * 2)
    assert market.objective == STANDARD + 3.0 * cm.terms.Fairness("minimax", groups)


def test_groups_have_their_own_priors():
    groups = """{groups=[{name="A", count=3, prior={family="uniform", low=0, high=1}},
                         {name="B", count=2}]}"""
    market = one(f"sellers={groups}".replace("\n", ""))
    levels = np.random.default_rng(0).random(5)
    reports = [*cm.Uniform(0, 1).quantile(levels[:3]), *PRIOR.quantile(levels[3:])]
    priors = {"A": cm.Uniform(0, 1), "B": PRIOR}
    expected = cm.Sellers(reports, priors, groups=list("AAABB"))
    np.testing.assert_array_equal(market.sellers.sensitivities, expected.sensitivities)
    np.testing.assert_array_equal(market.sellers.virtual_costs, expected.virtual_costs)
    assert repr(market.sellers) == repr(expected)


def test_the_kth_seller_has_the_same_quantile_of_every_prior():
    few = one("sellers={count=20}").sellers.sensitivities
    wide = one('sellers={count=20}, prior={family="uniform", low=1, high=9}').sellers.sensitivities
    np.testing.assert_allclose(2 * (few - 1), wide - 1)


def test_merging_is_deep_and_the_base_stays_what_it_is():
    text = BASE + "[variants.constraints]\ngroup_share = {at_most = {A = 0.6}}\n"
    problem = parse_problem(
        text, [f"sellers={GROUPS}", "constraints.group_share={at_least={A=0.2, B=0.1}}"]
    )
    share = problem.variants[0].markets[0].constraints.group_share
    assert share.at_least == {"A": 0.2, "B": 0.1}
    assert share.at_most == {"A": 0.6}
    assert problem.constraints.group_share.at_most == {}


def test_false_removes_parts_of_tables():
    share = "constraints={group_share={at_least={A=false}, equal=true}}"
    market = one(share, f"sellers={GROUPS}", "constraints.group_share={at_least={A=0.2}}")
    assert market.constraints[1].at_least == {}
    assert market.constraints[1].equal


def test_sellers_and_priors_are_replaced_as_a_whole():
    market = one('sellers={count=7}, prior={family="exponential", mean=2}')
    assert len(market.sellers) == 7
    assert market.sellers.prior == cm.priors.Exponential(2)


def test_a_sweep_is_a_market_for_each_value():
    sweep = 'objective={payments=false}, sweep={key="constraints.budget", values=[10, 20]}'
    problem = parse_problem(BASE, [f'variants=[{{name="x", {sweep}}}]'])
    (variant,) = problem.variants
    budgets = [table.build(0).constraints[1] for table in variant.markets]
    assert budgets == [cm.Budget(10), cm.Budget(20)]
    assert variant.values == (10, 20)


def test_a_sweep_of_a_nested_or_a_whole_number():
    changes = 'sweep={key="objective.payments.weight", values=[0.01, 0.1]}'
    problem = parse_problem(BASE, [f'variants=[{{name="x", {changes}}}]'])
    gammas = [t.build(0).objective.weight_of(cm.Payments) for t in problem.variants[0].markets]
    assert gammas == [0.01, 0.1]
    counts = 'sellers={count=2}, sweep={key="sellers.count", values=[3, 4]}'
    problem = parse_problem(BASE, [f'variants=[{{name="x", {counts}}}]'])
    assert [len(table.build(0).sellers) for table in problem.variants[0].markets] == [3, 4]


@for_each(
    [
        ("objective={spread=false, payments={privacy_cost={power=2}}}, constraints={cap=3}",),
        (
            f"objective={{quadratic-spread={{weight=1, Sigma={SIGMA}}}, "
            "payments={privacy_cost={slopes=[1, 2], thresholds=[1]}}, "
            'robust-costs={weight=1, kind="budget", radius=0.1, budget=2}, '
            'cvar={weight=1, level=0.5, of="eps"}}, '
            "constraints={moments={A=[[1], [2], [3]], b=[2]}, effective_size=2}",
        ),
    ]
)
def test_a_dump_is_a_problem_again(changes):
    base = BASE.replace("0.1 }", "0.1, privacy_cost = { power = 3 } }")
    problem = parse_problem(base, [f'variants=[{{name="x", {changes}}}]'])
    dump = problem.model_dump(mode="json")
    jsonschema.validate(dump, json_schema())
    again = VariantsProblem.model_validate(dump)
    assert again.model_dump(mode="json") == dump
    found, expected = (each.variants[0].markets[0].build(0) for each in (again, problem))
    assert found.objective == expected.objective
    assert found.constraints == expected.constraints


@for_each(
    [
        (
            "objective.spread.p=1",
            "objective.spread: p must be a number in [1.01, 40]",
        ),
        ("objective.spread.p=nan", "objective.spread: p must be a number in [1.01, 40]"),
        ("objective.spread.q=1", "objective.spread.q is not a known key; known are"),
        ("objective.noise.p=1", "objective.noise.p is not a known key; known are 'weight'"),
        ("objective.noise={}", "objective.noise.weight is missing"),
        ("objective.noise.weight=-1", "objective.noise.weight must be greater than or"),
        ("objective.payments.weight=0", "objective.payments.weight must be greater"),
        ("objective.spred={weight=1}", "objective.spred.term is 'spred'; did you mean 'spread'?"),
        ("objective.spread=3", "objective.spread must be a table, got 3"),
        ("objective=3", "objective must be a valid dictionary, got 3"),
        (
            'objective.payments.privacy_cost="cubic"',
            "objective.payments.privacy_cost: 'cubic' is no privacy cost",
        ),
        (
            "objective.payments.privacy_cost={power=0.5}",
            "objective.payments.privacy_cost: power must be a number in [1, inf)",
        ),
        (
            "objective.payments.privacy_cost={slopes=[2, 1], thresholds=[1]}",
            "objective.payments.privacy_cost: slopes is (2.0, 1.0)",
        ),
        ("objective.payments.privacy_csot=1", "is not a known key; did you mean 'privacy_cost'?"),
        ("objective.spread.reference=[1, 1]", "objective.spread: reference sums to 2"),
        ("objective.spread.reference=[1, true]", "objective.spread.reference[1]: True is not a"),
        (
            "objective.cvar={weight=1, level=1}",
            "objective.cvar: level must be a number in",
        ),
        ('objective.cvar={weight=1, level=0, of="x"}', "objective.cvar: of must be one of"),
        (
            "objective.quadratic-spread={weight=1, Sigma=[[1, 2], [2, 1]]}",
            "objective.quadratic-spread: Sigma has the eigenvalue -1 beside 3",
        ),
        (
            'objective.robust-costs={weight=1, kind="bugdet", radius=0.1}',
            "objective.robust-costs.kind is 'bugdet'; did you mean 'budget'?",
        ),
        (
            'objective.fairness={weight=1, kind="maximin"}',
            "objective.fairness.kind is 'maximin'; known are 'minimax'",
        ),
        (
            "constraints.moments={A=[[1], [2, 3]], b=[1]}",
            "constraints.moments: A is a tuple; give a matrix of finite numbers",
        ),
        ("constraints.moments={A=[[1]], b=[1, 2]}", "b has 2 entries for 1 columns of A"),
        ("constraints.effective_size=0.5", "constraints.effective_size must be"),
        ("constraints.cap=0.5", "constraints.cap: cap is 0.5"),
        ('constraints.cap="big"', "constraints.cap: 'big' is neither a number nor a list"),
        (
            "constraints.max_epsilon=0",
            "constraints.max_epsilon: the largest epsilon must be a finite number > 0",
        ),
        (
            "constraints.given_epsilon=1",
            "constraints.given_epsilon: the given epsilon must be a vector",
        ),
        ("constraints.budget=0", "constraints.budget must be greater than 0, got 0"),
        ("constraints.bugdet=1", "constraints.bugdet is not a known key; did you mean 'budget'?"),
        ("constraints.eta_range=[2, 1]", "constraints.eta_range: the range is empty"),
        ("constraints.group_share={}", "constraints.group_share: the table says nothing"),
        (
            "constraints.group_share={at_least={A=2}}",
            "constraints.group_share.at_least.A must be less than or equal to 1, got 2",
        ),
        ("sellers.count=3", "sellers: give one of count, sensitivities, groups and file"),
        ("sellers={}", "sellers: give one of count, sensitivities, groups and file"),
        ("sellers.cuont=3", "sellers.cuont is not a known key; did you mean 'count'?"),
        (
            'sellers={groups=[{name="A", count=1}, {name="A", count=2}]}',
            "sellers.groups: two groups have the same name",
        ),
        ('sellers={groups=[{name="A"}]}', "sellers.groups[0]: give either count"),
        (
            'sellers={groups=[{name="A", cuont=1}]}',
            "sellers.groups[0].cuont is not a known key; did you mean 'count'?",
        ),
        ("solve.gap=0", "solve.gap must be greater than 0, got 0"),
        ("audit.misreports=1", "audit.misreports must be greater than or equal to 2, got 1"),
        ("payments.tol=2", "payments.tol must be less than 1, got 2"),
        ("variants=[]", "variants must have more entries, got []"),
        ('variants=[{name="a"}, {name="a"}]', "variants: two variants have the same name"),
    ],
)
def test_mistakes_in_the_base_are_named_once(override, said):
    message = refusal(override)
    assert said in message
    assert "variants[0]" not in message


@for_each(
    [
        (
            "objective={spread={p=0.5}}",
            "variants[0].objective.spread: p must be a number in [1.01, 40]",
        ),
        ("objective={spread={q=3}}", "variants[0].objective.spread.q is not a known key"),
        ("objective={spred=false}", "variants[0].objective.spred: there is no objective.spred"),
        ("objective={spread=3}", "variants[0].objective.spread must be a table, got 3"),
        (
            "objective={noise=false, spread=false, payments=false}",
            "variants[0].objective must have more entries",
        ),
        ('objective={a={term="spred", weight=1}}', "variants[0].objective.a.term is 'spred'; did"),
        ('objective={a={term="noise"}}', "variants[0].objective.a.weight is missing"),
        ("objectiv={}", "variants[0].objectiv is not a known key; did you mean 'objective'?"),
        ("constraints={cap=0.5}", "variants[0].constraints.cap: cap is 0.5"),
        ("constraints={cap=[1, 2]}", "variants[0]: cap has 2 entries for 3 sellers"),
        ("constraints={caps=2}", "variants[0].constraints.caps is not a known key; did you mean"),
        (
            "constraints={group_share={equal=true}}",
            "variants[0]: constraints.group_share needs groups",
        ),
        ("objective={fairness={weight=1}}", "variants[0]: the term fairness needs groups"),
        ("constraints={effective_size=4}", "variants[0]: the effective size is 4"),
        (
            f"sellers={GROUPS}, constraints={{group_share={{at_least={{C=0.1}}}}}}",
            "variants[0]: at_least names the group 'C', which no seller is in",
        ),
        ("sellers={sensitivities=[9.0]}", "variants[0]: 1 of 1 sensitivities are not in the supp"),
        ("sellers={count=0}", "variants[0].sellers.count must be greater than"),
        ('sellers={groups=[{name="A"}]}', "variants[0].sellers.groups[0]: give either count"),
        ('prior={family="unifrm"}', "variants[0].prior: prior family 'unifrm' is unknown"),
        ("audit=3", "variants[0].audit must be a table, got 3"),
        ("audit=false", "variants[0].audit: there is no audit to remove"),
        (
            'sweep={key="constraints.budgt", values=[1, 2]}',
            "variants[0].constraints.budgt is not a known key; did you mean 'budget'?",
        ),
        (
            'sweep={key="constraints.budget", values=[-1, 2]}',
            "variants[0].constraints.budget must be greater than 0, got -1",
        ),
        (
            'sweep={key="constraints.cap.x", values=[1, 2]}',
            "variants[0].sweep.key: cap is not a table, so cap.x is no key",
        ),
        ('sweep={key="cap", values=[1, 2]}', "variants[0].sweep.key must match"),
        ('sweep={key="constraints.cap", values=[2, 1]}', "variants[0].sweep.values: the values do"),
        (
            'sweep={key="constraints.cap", values=[2]}',
            "variants[0].sweep.values must have more entries",
        ),
        (
            'sweep={key="constraints.cap", values=[1, "b"]}',
            "variants[0].sweep.values[1]: 'b' is not a finite number",
        ),
        (
            'sweep={key="constraints.cap", valus=[1, 2]}',
            "variants[0].sweep.valus is not a known key; did you mean 'values'?",
        ),
    ],
)
def test_mistakes_in_a_variant_are_named_there(changes, said):
    assert said in refused(changes)


def test_what_is_nowhere_is_missing_in_the_variant():
    text = 'kind = "variants"\ntitle = "t"\n[[variants]]\nname = "a"\n'
    with pytest.raises(ProblemFileError) as caught:
        parse_problem(text, path="my.toml")
    assert str(caught.value).splitlines() == [
        "my.toml: variants[0].sellers is missing",
        "my.toml: variants[0].objective is missing",
    ]
    with pytest.raises(ProblemFileError, match=r"the sellers have no prior; give \[prior\]"):
        parse_problem(text + "sellers = {count = 3}\nobjective = {noise = {weight = 1}}\n")


def test_the_file_that_the_guide_shows_is_one():
    text = GUIDE.read_text(encoding="utf-8").split("## Variants in a problem file")[1]
    problem = parse_problem(text.split("```toml")[1].split("```")[0])
    markets = [table.build(0) for variant in problem.variants for table in variant.markets]
    assert [len(market.constraints) for market in markets] == [1, 1, 0, 2, 2, 2]
