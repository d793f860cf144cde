"""The report of a market and its variants: certificates, truthful prices, what is compared."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.lab import build_report
from convexmarket.lab.kinds.variants.comparing import CLOSE, at_equal, flat_pieces
from convexmarket.lab.kinds.variants.run import run_variants
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.report.model import Report
from convexmarket.lab.report.parts import METHOD_WORDS, select, short
from convexmarket.lab.report.words import equals, fine_percent, format_number
from convexmarket.lab.result import Result
from tests.lab.report.builders import (
    altered,
    crowded,
    drawn,
    facts,
    plain_blanks,
    problem_text,
    stored,
    table,
    words,
)

CURVES = """
[[variants]]
name = "over gamma"
sweep = { key = "objective.payments.weight", values = [0.002, 0.005, 0.01, 0.02, 0.05, 0.1] }
[[variants]]
name = "over budget"
objective.payments = false
sweep = { key = "constraints.budget", values = [5, 10, 20] }
[[variants]]
name = "over cap"
sweep = { key = "constraints.cap", values = [1, 2] }
"""
LIMITS = """
[[variants]]
name = "over cap"
sweep = { key = "constraints.cap", values = [1, 1.5, 2] }
[[variants]]
name = "over epsilon"
sweep = { key = "constraints.max_epsilon", values = [0.1, 0.2, 0.4, 0.8] }
"""
COSTS = """
[[variants]]
name = "linear"
[[variants]]
name = "square"
objective.payments.privacy_cost = { power = 2 }
"""
PRIORS = """
[[variants]]
name = "plain"
[[variants]]
name = "dearer"
prior = { family = "uniform", low = 1.5, high = 6.0 }
"""
GROUPS = """
[[variants]]
name = "free"
[[variants]]
name = "equal"
constraints.group_share.equal = true
"""
TWO_GROUPS = (
    '{groups = [{name = "town", count = 12}, {name = "land", count = 8, '
    'prior = {family = "mixture", weights = [0.5, 0.5], components = ['
    '{family = "beta", a = 2, b = 8, low = 1, high = 6}, '
    '{family = "beta", a = 10, b = 5, low = 1, high = 6}]}}]}'
)


HEARD = (
    r"With simulated reports: “(.*?)”, [\d.]+% of the sellers, "
    r"carries (.*? per seller [\d.]+\)) and (.*?\))\."
)
IMPOSSIBLE = """
[[variants]]
name = "impossible"
constraints = { max_epsilon = 0.01, eta_range = [1.0, 2.0] }
"""


def run(variants: str, *settings: str) -> Result:
    base, _, _ = problem_text("variants").partition("[[variants]]")
    return run_variants(parse_problem(base + variants, settings))


@pytest.fixture(scope="module")
def result() -> Result:
    return stored("variants")


@pytest.fixture(scope="module")
def curves() -> Result:
    return run(CURVES)


@pytest.fixture(scope="module")
def report(result: Result) -> Report:
    return build_report(result)


def test_facts_count_what_was_solved_and_is_truthful(report: Report) -> None:
    found = facts(report)
    assert found["variants"] == "5"
    assert found["markets solved"] == "6 of 7"
    assert found["sellers"] == "20"
    assert found["truthful prices by construction"] == "5 of 5"


def test_objectives_of_different_terms_are_not_compared(result, report: Report) -> None:
    rows = result.tables["points"].drop_duplicates("variant").set_index("variant")
    rise = rows.objective["capped"] / rows.objective["plain"] - 1
    assert f"{fine_percent(rise)} more in “capped”" in words(report)
    assert "more in “p = inf”" not in words(report)
    assert "cannot be compared" in words(report)
    assert "error" not in table(report, "variants")
    assert {"n_effective", "noise"} <= set(table(report, "variants"))


def test_what_has_no_answer_is_said_with_its_reason(result, report: Report) -> None:
    text = words(report)
    assert "“impossible” is infeasible" in text
    assert select(result.tables["points"], variant="impossible").message.item() in text
    assert "status" in table(report, "variants")
    failures = table(report, "failures")
    assert list(failures.variant) == ["impossible"]
    assert failures.message.iloc[0]


def test_the_certificate_names_methods_and_solves(result, report: Report) -> None:
    text = words(report)
    assert "in every market" in text
    assert {METHOD_WORDS[name] in text for name in result.tables["points"].method.dropna()} == {
        True
    }
    conic = result.tables["points"][result.tables["points"].solver.notna()].solves.sum()
    assert f"and {conic:.0f} conic solves" in text
    certificates = table(report, "certificates")
    assert "branch and bound" in set(certificates.method)
    assert {"gap", "lower_bound", "solves", "solve_statuses", "solver"} <= set(certificates)
    np.testing.assert_array_equal(certificates.objective, result.tables["points"].objective)


def test_curves_are_compared_at_equal_payments(curves) -> None:
    report = build_report(curves)
    assert {figure.name for figure in report.figures} == {
        "frontier", "parts", "sweep_1", "sweep_2", "sweep_3"
    }  # fmt: skip
    for figure in report.figures[1:]:
        assert figure.draw().axes
    text = words(report)
    assert "Along “over gamma” (weight γ of payments from 0.002 to 0.1) expected" in text
    assert text.startswith(
        "With simulated reports: at equal expected payments (all 3 points) the error of "
        "“over budget”"
    )
    assert "“over budget” is that of “over gamma”, within" in text
    assert "the error of “over cap” is" in text
    assert "(at cap k = 1)" in text
    equal = table(report, "equal_payments")
    assert (equal.variant == "over budget").sum() == 3
    assert equal.change[equal.variant == "over budget"].abs().max() < 0.01
    assert list(table(report, "variants").value) == list(curves.tables["points"].value)


def test_where_truthful_prices_exist_is_counted_with_the_reasons(curves) -> None:
    report = build_report(curves)
    truthful = (
        curves.tables["points"].drop_duplicates("variant").incentives == "by construction"
    ).sum()
    assert facts(report)["truthful prices by construction"] == f"{truthful} of 3"
    for reason in set(curves.tables["points"].reason):
        assert reason in words(report)


def test_groups_and_ironing() -> None:
    result = run(GROUPS, f"sellers={TWO_GROUPS}")
    report = build_report(result)
    assert {figure.name for figure in report.figures} == {
        "allocations", "groups", "virtual_costs", "densities"
    }  # fmt: skip
    for figure in report.figures[1:]:
        assert figure.draw().axes
    text = words(report)
    groups = result.tables["groups"].set_index(["variant", "group"])
    assert groups.payment_mean.isna().any(), "so that expected payments are what is compared"
    group, free, equal = re.match(HEARD, text).groups()
    shares = groups.share_of_weight.xs(group, level="group")
    paid = groups.expected_payment_mean.xs(group, level="group")
    least, most = shares.idxmin(), shares.idxmax()
    assert (
        free
        == f"{shares[least]:.1%} of the weight in “{least}” (expected payment per seller "
        + (f"{short(paid[least])})")
    )
    assert equal == f"{shares[most]:.1%} in “{most}” ({short(paid[most])})"
    np.testing.assert_array_equal(table(report, "groups").share_of_weight, groups.share_of_weight)
    curves = result.tables["virtual_costs"]
    ((low, high),) = flat_pieces(curves[~curves.regular])
    assert "The prior of “free” (land) is not regular" in text
    assert f"virtual cost flat from c = {short(low)} to {short(high)}, on" in text
    pooled = select(result.tables["sellers"], variant="free", group="land")
    pooled = pooled[pooled.sensitivity.between(low, high)]
    assert pooled.epsilon.nunique() == 1
    assert f"the {len(pooled)} sellers there sell ε = {short(pooled.epsilon.iloc[0])} each" in text


def test_two_limits_are_compared_at_equal_largest_guarantees() -> None:
    result = run(LIMITS)
    report = build_report(result)
    (limits,) = (figure for figure in report.figures if figure.name == "limits")
    assert limits.draw().axes
    assert re.match(
        r"With simulated reports: at equal largest guarantees \(.*\) the objective of “over cap”",
        words(report),
    )
    assert report.figures[0] is limits
    assert METHOD_WORDS["exact"] in words(report)
    rows = at_equal(
        select(result.tables["points"], variant="over epsilon"),
        select(result.tables["points"], variant="over cap"),
        "epsilon_max",
        "objective",
    )
    assert (rows.change.dropna() > -1e-3).all(), "the limit is the cheapest way to its guarantee"


def test_a_curve_is_met_at_its_own_points_and_missing_beyond_them() -> None:
    known = pd.DataFrame({"variant": "a", "value": 1.0, "x": [1.0, 2.0, 4.0], "y": [8.0, 4.0, 2.0]})
    new = pd.DataFrame({"variant": "b", "value": 1.0, "x": [0.5, 1.0, 2.0], "y": [9.0, 8.0, 5.0]})
    found = at_equal(known, new, "x", "y")
    np.testing.assert_allclose(found.change, [np.nan, 0.0, 0.25], atol=1e-12)
    assert at_equal(known[:1], new, "x", "y").change.isna().all()


def test_different_privacy_costs_are_drawn() -> None:
    report = build_report(run(COSTS))
    (costs,) = (figure for figure in report.figures if figure.name == "privacy_costs")
    assert costs.draw().axes


def test_another_prior_is_compared_by_the_objective() -> None:
    result = run(PRIORS)
    rows = result.tables["points"].set_index("variant").objective
    rise = rows["dearer"] / rows["plain"] - 1
    assert f"{fine_percent(rise)} more in “dearer”" in words(build_report(result))


@pytest.mark.parametrize("seed", range(12))
def test_what_a_comparison_says_follows_from_its_table(curves, seed: int) -> None:
    """Whatever the errors are: lower, higher, both, or the same but for the interpolation."""
    rng = np.random.default_rng(seed)
    size, centre = 10.0 ** rng.uniform(-5, -1), rng.choice([-1.0, 0.0, 1.0])
    points = curves.tables["points"].copy()
    others = points.variant != "over gamma"
    points.loc[others, "error"] *= 1 + size * rng.uniform(centre - 1, centre + 1, others.sum())
    report = build_report(altered(curves, points=points))
    changes = table(report, "equal_payments").set_index("variant").change
    for name in ("over budget", "over cap"):
        found = changes[name].dropna()
        (said,) = re.findall(rf"the error of “{name}” is (.*?)\.(?= |$)", words(report))
        numbers = [float(number) / 100 for number in re.findall(r"([\d.]+)%", said)]
        if "within" in said:
            assert found.abs().max() <= numbers[0]
        elif said.startswith("between"):
            assert found.min() < 0 < found.max()
            np.testing.assert_allclose(numbers, [-found.min(), found.max()], rtol=0.01)
        else:
            sign = 1 if "above that" in said else -1
            np.testing.assert_allclose(numbers[0], (sign * found).max(), rtol=0.01)
            assert ((sign * found).min() < 0) == ("nowhere more than" in said)
            assert (sign * found).min() >= -CLOSE


LEVELS = st.sampled_from([0.25, 0.2501, 0.5, 2.0])


@given(
    points=st.lists(
        st.tuples(st.booleans(), st.sampled_from([-2.0, -1.0, 1.0, 1.00001]), *[LEVELS] * 3),
        min_size=7,
        max_size=7,
    ),
    truthful=st.lists(st.booleans(), min_size=7, max_size=7),
)
def test_what_is_said_of_variants_follows_from_their_points(points, truthful) -> None:
    found = stored("variants")
    names = ["objective", "epsilon_max", "expected_payments", "n_effective"]
    made = pd.DataFrame(points, columns=["known", *names])
    rows = found.tables["points"].assign(
        **{name: made[name].where(made.known) for name in names},
        status=np.where(made.known, "solved", "infeasible"),
        message="No.",
        n_bought=7.0,
        incentives=np.where(truthful, "by construction", "not guaranteed"),
    )
    report = build_report(altered(found, points=rows))
    text = words(report)
    per_variant = rows.assign(is_so=truthful).groupby("variant").is_so.min()
    told = facts(report)["truthful prices by construction"]
    assert told == f"{per_variant.sum()} of {len(per_variant)}"
    single = rows[(rows.status == "solved") & (rows.variant != "over gamma")]
    for column, subject, symbol in (
        ("epsilon_max", "largest guarantee sold", "ε"),
        ("expected_payments", "sum of expected payments", ""),
    ):
        said = re.search(rf"(?i)the {subject} (.*?)\.(?= |$)", text)
        assert bool(said) == (len(single) > 1)
        if said:
            low, high = (
                plain_blanks(equals(symbol, x) if symbol else format_number(x))
                for x in (single[column].min(), single[column].max())
            )
            in_said = set(re.findall("“(.*?)”", said[1]))
            if low == high:
                assert said[1].startswith(f"is {low} in “")
                assert in_said == set(single.variant)
            else:
                of = single.set_index("variant")[column]
                assert re.fullmatch(rf"ranges from {low} in “.*?” to {high} in “.*?”", said[1])
                assert of[list(in_said)].tolist() in (
                    [of.min(), of.max()],
                    [of.max(), of.min()],
                )
    uneven = len(single) > 1 and short(single.n_effective.min()) != short(single.n_effective.max())
    assert ("most concentrated" in text) == ("It is most even" in text) == uneven
    if uneven:
        of = single.set_index("variant").n_effective
        least, most = re.search("concentrated in “(.*?)”.*? most even in “(.*?)”", text).groups()
        assert (of[least], of[most]) == (of.min(), of.max())
    objective = single.set_index("variant").objective
    constrained = [
        name for name in ("capped", "impossible") if {"plain", name} <= {*objective.index}
    ]
    assert ("What a constraint costs" in text) == bool(constrained)
    for name in constrained:
        change = (objective[name] - objective["plain"]) / abs(objective["plain"])
        how = f"{fine_percent(abs(change))} {'more' if change > 0 else 'less'}"
        how = "within 0.01% of that" if abs(change) < 1e-4 else how
        assert f"{how} in “{name}”" in text


def test_negative_objectives_are_compared_by_their_size(curves) -> None:
    """The sign of a change is that of the difference, also where objectives are negative."""
    known = pd.DataFrame({"variant": "a", "value": 1.0, "x": [1.0, 2.0, 4.0], "y": [-8, -4, -2.0]})
    found = at_equal(known, known.assign(y=known.y - 1), "x", "y")
    np.testing.assert_allclose(found.change, [-1 / 8, -1 / 4, -1 / 2])


def test_what_rounding_leaves_is_not_listed_as_sold(result) -> None:
    sellers = result.tables["sellers"].copy()
    dust = sellers.index[sellers.weight == 0][:3]
    sellers.loc[dust, ["weight", "epsilon", "expected_payment"]] = [1e-13, 1e-12, 1e-12]
    report = build_report(altered(result, sellers=sellers))
    assert len(dust) == 3
    (shown,) = (piece for piece in report.tables if piece.name == "sellers")
    for frame in (shown.frame, shown.stored):
        assert (frame.loc[dust, ["weight", "epsilon", "expected_payment"]] == 0).all(axis=None)
        kept = frame.epsilon.drop(dust)
        np.testing.assert_array_equal(kept, sellers.epsilon.drop(dust))


@pytest.mark.campaign
def test_the_labels_of_panels_do_not_touch() -> None:
    report = build_report(run(GROUPS, f"sellers={TWO_GROUPS}"))
    for name in ("allocations", "groups", "virtual_costs"):
        assert not crowded(drawn(report, name)), name
    limits = build_report(run(LIMITS))
    for name in ("limits", "frontier", "parts", "sweep_1", "sweep_2"):
        assert not crowded(drawn(limits, name)), name


def test_an_audit_is_reported() -> None:
    result = run('[[variants]]\nname = "plain"\n', "audit.sellers=3")
    report = build_report(result)
    assert facts(report)["no lie of one seller pays and nobody loses, audited"] == "yes"
    assert "finds nothing to gain from lying" in words(report)
    failed = altered(result, audits=pd.DataFrame([{"variant": "plain", "message": "too hard"}]))
    text = words(build_report(failed))
    assert "No variant could be audited." in text
    assert "Not audited: plain. too hard" in text
    partly = altered(
        result,
        audits=pd.concat(
            [result.tables["audits"], pd.DataFrame([{"variant": "other", "message": "too hard"}])]
        ),
    )
    assert "Not audited: other. too hard" in words(build_report(partly))


def test_nothing_was_solved() -> None:
    report = build_report(run(IMPOSSIBLE))
    assert words(report).startswith("With simulated reports: 0 of 1 market solved.")
    assert facts(report)["markets solved"] == "0 of 1"
    assert "infeasible" in words(report)
