"""Compare virtual costs with their definition and ironed costs with a convex hull."""

from __future__ import annotations

import functools
import json
import pickle
import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import log_ndtr

import convexmarket as cm
from convexmarket.errors import ParameterError, PriorError
from convexmarket.priors import (
    Beta,
    EmpiricalPrior,
    Exponential,
    Gamma,
    LogNormal,
    Mixture,
    Power,
    Prior,
    TruncatedNormal,
    Uniform,
    parse_prior,
    prior_from_dict,
)
from tests import one_in


class _Spiked(stats.rv_continuous):
    """Distribution whose density is infinite in the middle of its support."""

    def _pdf(self, x):
        return 1 / np.sqrt(8 * np.abs(x - 0.5))

    def _cdf(self, x):
        return 0.5 + np.sign(x - 0.5) * np.sqrt(np.abs(x - 0.5) / 2)

    def _ppf(self, q):
        return 0.5 + np.sign(q - 0.5) * 2 * (q - 0.5) ** 2


def histogram(weights, edges) -> Prior:
    with warnings.catch_warnings():
        # SciPy gives a warning, because frozen distributions ignore the argument density.
        warnings.simplefilter("ignore", RuntimeWarning)
        frozen = stats.rv_histogram((np.array(weights), np.array(edges)), density=True)()
    return Prior.from_scipy(frozen)


#: Functions that create a prior of each family and the same distribution in SciPy.
FAMILIES = {
    "uniform": (lambda: Uniform(0.02, 0.10), lambda: stats.uniform(0.02, 0.08)),
    "exponential": (lambda: Exponential(0.05), lambda: stats.expon(scale=0.05)),
    "power": (lambda: Power(3, 0.2), lambda: stats.powerlaw(3, scale=0.2)),
    "beta": (lambda: Beta(2, 5), lambda: stats.beta(2, 5)),
    "affine beta": (lambda: Beta(0.5, 1, 1, 3), lambda: stats.beta(0.5, 1, loc=1, scale=2)),
    "truncated normal": (
        lambda: TruncatedNormal(0.05, 0.02, 0.01, 0.1),
        lambda: stats.truncnorm(-2, 2.5, loc=0.05, scale=0.02),
    ),
    "lognormal": (lambda: LogNormal(-3, 0.5), lambda: stats.lognorm(0.5, scale=np.exp(-3))),
    "steep gamma": (lambda: Gamma(0.3, 0.1), lambda: stats.gamma(0.3, scale=0.1)),
    "gamma": (lambda: Gamma(4, 0.1), lambda: stats.gamma(4, scale=0.1)),
}
REGULAR = {name: make for name, (make, _) in FAMILIES.items()} | {
    "scipy's gamma": lambda: Prior.from_scipy(stats.gamma(2, scale=0.05)),
    "triangle": lambda: Prior.from_scipy(stats.triang(0.3)),
}
IRREGULAR = {
    "arcsine": lambda: Beta(0.5, 0.5),
    "beta, infinite at the top": lambda: Beta(1, 0.3, 1, 2),
    "two groups": lambda: Mixture(
        [1, 1], [TruncatedNormal(0.2, 0.1, 0, 1), TruncatedNormal(0.8, 0.1, 0, 1)]
    ),
    "mixture with jumps": lambda: Mixture([3, 1], [Uniform(0.1, 1), Uniform(0.5, 2)]),
    "histogram": lambda: histogram([1, 5, 1, 2, 8], [0.0, 1, 2, 3, 4, 5]),
}
SAMPLE = {"sample": lambda: EmpiricalPrior([1, 2, 2, 4])}


@functools.cache
def prior_of(name) -> Prior:
    return (REGULAR | IRREGULAR | SAMPLE)[name]()


histograms = st.builds(
    lambda bins, low: histogram(
        [weight for weight, _ in bins], low + np.cumsum([0.0] + [width for _, width in bins])
    ),
    st.lists(
        st.tuples(st.integers(1, 20), st.sampled_from([0.1, 0.5, 1.0])), min_size=1, max_size=6
    ),
    st.sampled_from([0.0, 0.02, 1.0]),
)
# Small samples, most of which contain equal values.
tied_samples = st.lists(
    st.one_of(st.integers(0, 5).map(float), st.floats(0, 10)), min_size=1, max_size=12
)


def hull_by_chords(q, curve):
    """Compute the lower convex hull of a curve at the points q as the minimum of all chords."""
    hull = np.array(curve, dtype=float)
    for i in range(len(q)):
        for j in range(i + 1, len(q)):
            inside = slice(i, j + 1)
            t = (q[inside] - q[i]) / (q[j] - q[i])
            hull[inside] = np.minimum(hull[inside], (1 - t) * curve[i] + t * curve[j])
    return hull


# Virtual costs.


@pytest.mark.parametrize("name", FAMILIES)
def test_virtual_cost_is_c_plus_cdf_over_density(name):
    prior, frozen = prior_of(name), FAMILIES[name][1]()
    c = frozen.ppf(np.linspace(0.01, 0.99, 99))
    np.testing.assert_allclose(prior.virtual_cost(c), c + frozen.cdf(c) / frozen.pdf(c), rtol=1e-9)
    np.testing.assert_allclose(prior.cdf(c), frozen.cdf(c))
    np.testing.assert_allclose(prior.pdf(c), frozen.pdf(c))
    np.testing.assert_allclose(prior.quantile([0.0, 0.3, 1.0]), frozen.ppf([0.0, 0.3, 1.0]))
    assert prior.mean == pytest.approx(frozen.mean())


@pytest.mark.parametrize(
    ("prior", "slope"),
    [
        (Uniform(1, 2), 2.0),
        (Power(4, 2), 1.25),
        (Beta(2, 1, 1, 3), 1.5),
        (Beta(2, 2), None),
        (Exponential(1), None),
        (EmpiricalPrior([1, 2]), None),
    ],
)
def test_virtual_cost_slope_equals_the_slope_of_an_affine_psi(prior, slope):
    assert prior.virtual_cost_slope == (None if slope is None else pytest.approx(slope))
    if slope is not None:
        low, high = prior.support
        c = np.linspace(low, high, 7)
        np.testing.assert_allclose(prior.virtual_cost(c), low + slope * (c - low))


@pytest.mark.parametrize("name", [*REGULAR, *IRREGULAR])
def test_virtual_cost_is_correct_at_the_ends_of_the_support(name):
    prior = prior_of(name)
    low, high = prior.support
    for cost in (prior.virtual_cost, prior.ironed_virtual_cost):
        assert cost(high * 1.01) == np.inf
        assert cost(np.inf) == np.inf
        assert not np.isnan(cost([low, min(high, 1e300)])).any()
    assert prior.virtual_cost(low) == pytest.approx(low)


def test_virtual_cost_is_correct_if_the_density_is_zero_or_infinite_at_an_end():
    assert Beta(2, 2).virtual_cost([0, 1]).tolist() == [0, np.inf]
    assert Beta(0.5, 1).virtual_cost([0, 1]).tolist() == [0, 3]
    assert Beta(0.5, 0.5).virtual_cost([0, 1]).tolist() == [0, 1]
    np.testing.assert_allclose(
        TruncatedNormal(0, 1, 0, 1).virtual_cost(1.0),
        1 + (stats.norm.cdf(1) - 0.5) / stats.norm.pdf(1),
    )


def test_virtual_costs_are_accurate_if_probabilities_underflow():
    # For a gamma prior, F/f tends to c/shape at zero. The upper tail is nearly exponential.
    assert Exponential(0.05).virtual_cost(1e-20) == pytest.approx(2e-20, rel=1e-14)
    assert Exponential(1).virtual_cost(700.0) == pytest.approx(700 + np.expm1(700.0), rel=1e-12)
    assert Exponential(1).virtual_cost(1e6) == np.inf
    assert Gamma(1, 1).virtual_cost(600.0) == pytest.approx(np.exp(600.0), rel=1e-9)
    # The difference is Mills' ratio of a normal distribution at 40 deviations below the mean.
    far = TruncatedNormal(0.5, 0.01, 0.0, 1.0).virtual_cost(0.1)
    mills = np.exp(log_ndtr(-40) - stats.norm.logpdf(-40))
    assert far - 0.1 == pytest.approx(0.01 * mills, rel=1e-9)


ENDLESS = {"exponential", "lognormal", "steep gamma", "gamma", "scipy's gamma"}


@pytest.mark.parametrize(
    "name", one_in(3, [*(name for name in REGULAR if name not in ENDLESS), *IRREGULAR])
)
def test_expected_virtual_cost_equals_the_top_of_the_support(name):
    prior = prior_of(name)
    low, high = prior.support
    pieces = np.unique([low, *np.linspace(low, high, 9)[1:-1], *prior.breakpoints, high])
    for cost, tolerance in ((prior.virtual_cost, 1e-5), (prior.ironed_virtual_cost, 1e-4)):
        total = sum(
            integrate.quad(lambda c, cost=cost: cost(c) * prior.pdf(c), *piece, limit=200)[0]
            for piece in pairwise(pieces)
        )
        assert total == pytest.approx(high, rel=tolerance)


@given(tied_samples)
def test_expected_virtual_cost_of_a_sample_equals_its_maximum(samples):
    prior = EmpiricalPrior(samples)
    assert np.mean(prior.virtual_cost(samples)) == pytest.approx(max(samples), abs=1e-9)
    assert np.mean(prior.ironed_virtual_cost(samples)) == pytest.approx(max(samples), abs=1e-9)


# Ironing.


@pytest.mark.parametrize("name", IRREGULAR)
def test_an_irregular_prior_is_ironed(name):
    prior = prior_of(name)
    low, high = prior.support
    c = np.linspace(low, high, 20_001)[:-1]
    ironed = prior.ironed_virtual_cost(c)
    assert not prior.is_regular
    assert np.any(np.diff(prior.virtual_cost(c)) < 0)
    assert np.all(np.diff(ironed) >= -1e-12 * ironed[1:])
    assert prior.breakpoints.size >= 1
    assert np.all((prior.breakpoints > low) & (prior.breakpoints < high))
    # The ironed cost is constant on an ironed interval.
    start, end = [*prior.breakpoints, high][:2]
    assert np.ptp(prior.ironed_virtual_cost(np.linspace(start, end, 50))) < 1e-9 * high
    # The ironed cost equals psi below the first ironed interval.
    below = c[c < start - (high - low) / 1000]
    np.testing.assert_allclose(
        prior.ironed_virtual_cost(below), prior.virtual_cost(below), rtol=1e-4, atol=1e-5
    )


def test_ironing_of_the_arcsine_prior_solves_the_tangency_condition():
    # The revenue curve of Beta(1/2, 1/2) is R(q) = q*sin(pi*q/2)^2.
    # The hull of R is a chord above the q at which R'(q) = (1 - R(q))/(1 - q).
    def r(q):
        return q * np.sin(np.pi * q / 2) ** 2

    def psi(q):
        return np.sin(np.pi * q / 2) ** 2 + q * np.pi / 2 * np.sin(np.pi * q)

    q = np.linspace(0.3, 0.9, 100_001)
    tangent = q[np.argmin(np.abs(psi(q) - (1 - r(q)) / (1 - q)))]
    prior = Beta(0.5, 0.5)
    assert prior.breakpoints == pytest.approx([np.sin(np.pi * tangent / 2) ** 2], abs=2e-3)
    assert prior.ironed_virtual_cost(0.9) == pytest.approx(psi(tangent), rel=1e-5)


@given(histograms)
def test_ironed_cost_is_nondecreasing_and_integrates_to_the_convex_hull(prior):
    check_hull(prior, 10_000)


def check_hull(prior, n_cells):
    low, high = prior.support
    c = np.linspace(low, high, n_cells + 1)
    ironed = prior.ironed_virtual_cost((c[1:] + c[:-1]) / 2)
    assert np.all(np.diff(ironed) >= -1e-12 * ironed[1:])
    q = prior.cdf(c)
    bought = np.append(0, np.cumsum(ironed * np.diff(q)))
    coarse = slice(None, None, n_cells // 100)
    hull = hull_by_chords(q[coarse], (q * c)[coarse])
    np.testing.assert_allclose(bought[coarse], hull, atol=5e-3 * high)


@given(tied_samples)
def test_ironed_levels_of_a_sample_equal_the_slopes_of_the_hull(samples):
    prior = EmpiricalPrior(samples)
    values, counts = np.unique(samples, return_counts=True)
    q = np.append(0, np.cumsum(counts)) / len(samples)
    ironed = prior.ironed_virtual_cost(values)
    assert np.all(np.diff(ironed) >= 0)
    hull = hull_by_chords(q, q * np.append(0, values))
    np.testing.assert_allclose(np.append(0, np.cumsum(ironed * np.diff(q))), hull, atol=1e-9)
    if prior.is_regular:
        np.testing.assert_allclose(ironed, prior.virtual_cost(values))


@given(tied_samples)
def test_an_empirical_cost_is_constant_between_breakpoints(samples):
    prior = EmpiricalPrior(samples)
    low, high = prior.support
    assert prior.is_step
    pieces = np.unique([low, *prior.breakpoints, high])
    for start, end in pairwise(pieces):
        inside = np.linspace(start, end, 9)[1:]
        assert np.ptp(prior.ironed_virtual_cost(inside[inside > start])) == 0
    for jump in prior.breakpoints:
        assert low < jump < high
        after = np.nextafter(jump, np.inf)
        assert prior.ironed_virtual_cost(jump) < prior.ironed_virtual_cost(after)


# Copies, equality and parsing.


@pytest.mark.parametrize("name", [*FAMILIES, "arcsine", *SAMPLE])
def test_a_prior_is_unchanged_by_repr_dict_and_pickle_round_trips(name):
    prior = prior_of(name)
    copies = [
        eval(repr(prior), vars(cm.priors)),
        prior_from_dict(json.loads(json.dumps(prior.to_dict()))),
        pickle.loads(pickle.dumps(prior)),
    ]
    for copy in copies:
        assert copy == prior
        assert hash(copy) == hash(prior)


def test_priors_of_one_family_with_equal_values_are_equal():
    assert Uniform(0, 1) == Uniform(np.float64(0), 1) != Uniform(0, 2)
    assert Uniform(0, 1) != Beta(1, 1)
    assert Uniform(0, 1) != "uniform:0,1"
    assert repr(Uniform(np.float64(0.02), 0.1)) == "Uniform(0.02, 0.1)"
    assert EmpiricalPrior([1, 2]) != EmpiricalPrior([1, 2, 2])
    scipy_prior = Prior.from_scipy(stats.gamma(2, scale=0.05))
    assert scipy_prior == Prior.from_scipy(stats.gamma(2, scale=0.05))
    assert scipy_prior == prior_from_dict(json.loads(json.dumps(scipy_prior.to_dict())))
    assert repr(scipy_prior) == "Prior.from_scipy(scipy.stats.gamma(2.0, scale=0.05))"
    bins = prior_of("histogram")
    assert bins != histogram([1, 5, 1, 2, 8], [0.0, 1, 2, 3, 4, 5])
    assert repr(bins) == "Prior.from_scipy(<rv_histogram>)"
    assert bins.to_dict() == {"family": "custom", "distribution": "rv_histogram"}


@pytest.mark.parametrize("content", ["0.1\n0.2\n0.2\n", "name,cost\na,0.1\nb,0.2\nc,0.2\n"])
def test_parse_prior_reads_a_sample_with_or_without_header(tmp_path, content):
    path = tmp_path / "Costs.csv"
    path.write_text(content)
    assert parse_prior(f"empirical:{path}") == EmpiricalPrior([0.1, 0.2, 0.2])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("triangle:1,2", r"'triangle' is unknown.*empirical:.*uniform:0.02,0.10"),
        ("", "'' is unknown"),
        ("uniform:a,b", "low = 'a'; give a finite number"),
        ("uniform:1", "prior has 1 values; give low, high, such as uniform:0.02,0.10"),
        ("uniform:0,02,0,1", "prior has 4 values; give low, high, such as uniform:0.02,0.10"),
        ("uniform:0,nan", "high = nan; give a finite number$"),
        ("uniform:2,1", "low = 2, high = 1; give 0 <= low < high"),
        (3, "'3' is unknown"),
        ("empirical:/no/such/file.csv", "No such file.*give a CSV file"),
    ],
)
def test_parse_prior_names_the_mistake(text, words):
    with pytest.raises(PriorError, match=words):
        parse_prior(text)


@pytest.mark.parametrize("content", ["name\na\nb\n", "x,y\n1,\n,2\n"])
def test_parse_prior_refuses_a_file_without_a_full_numeric_column(tmp_path, content):
    path = tmp_path / "costs.csv"
    path.write_text(content)
    with pytest.raises(PriorError, match="no column contains a number in every row"):
        parse_prior(f"empirical:{path}")


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ({}, "no key 'family'"),
        ("uniform", "no key 'family'"),
        ({"family": "custom", "distribution": "rv_histogram"}, "'custom' is unknown"),
        ({"family": ["uniform"]}, "is unknown"),
        ({"family": "uniform", "low": 0, "high": 1, "width": 2}, "unexpected keyword.*'width'"),
        ({"family": "uniform", "low": 0, "high": "much"}, "high = 'much'; give a finite number"),
        ({"family": "scipy", "distribution": "poisson"}, "'poisson' is not a continuous"),
        ({"family": "mixture", "weights": [1], "components": ["uniform"]}, "no key 'family'"),
        ({"family": "mixture", "weights": [1], "components": 3}, r"components\[0\] is 3"),
        ({"family": "scipy", "distribution": "gamma"}, "the parameters are distribution, args"),
    ],
)
def test_prior_from_dict_names_the_mistake(described, words):
    with pytest.raises(PriorError, match=words):
        prior_from_dict(described)


# Mixtures.


def test_parse_prior_accepts_a_mixture():
    prior = parse_prior("mixture: 0.7*truncnorm:0.03,0.01,0,0.1; 0.3*uniform:0.02,0.2")
    parts = [TruncatedNormal(0.03, 0.01, 0, 0.1), Uniform(0.02, 0.2)]
    assert prior == Mixture([7, 3], parts) != Mixture([3, 7], parts)
    assert hash(prior) == hash(Mixture([7, 3], parts))
    described = prior.to_dict()
    assert described["weights"] == [0.7, 0.3]
    assert prior_from_dict(json.loads(json.dumps(described))) == prior
    nested = Mixture([1, 1], [prior, Beta(2, 2)])
    assert prior_from_dict(nested.to_dict()) == nested
    assert eval(repr(prior), vars(cm.priors)) == prior


# Refusals.


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Mixture([1], [Uniform(0, 1)] * 2),
            r"weights of shape \(1,\) for .*a weight for each",
        ),
        (lambda: Mixture([1, -1], [Uniform(0, 1)] * 2), r"weights\[1\] must be a finite"),
        (lambda: Mixture([1], Uniform(0, 1).cdf), r"components\[0\] is <bound .*not a prior"),
        (lambda: Mixture([1], [EmpiricalPrior([1])]), "give .* components with a density"),
        (lambda: Mixture([1, 1], [Uniform(2, 3), Uniform(0, 1)]), "density is 0.0 at c = "),
        (lambda: Mixture([1, 1], [Beta(2, 2), Beta(2, 2, 1, 2)]), "density is 0.0 at c = 1"),
        (lambda: Mixture([1, 1], [Beta(2, 2), Beta(0.5, 2, 0.3, 1)]), "density is inf at c = 0.3"),
        (lambda: parse_prior("mixture:a*uniform:0,1"), "weights must hold numbers"),
        (lambda: Uniform(0.1, 0.1), "Uniform: low = 0.1, high = 0.1; give 0 <= low < high"),
        (lambda: Uniform(-1, 1), "low = -1, high = 1; give 0 <= low < high"),
        (lambda: Uniform(0, np.inf), "high = inf; give a finite number"),
        (lambda: Exponential(0), "Exponential: mean = 0; give a finite number in .2e-308, inf"),
        (lambda: Beta(1, None), "Beta: b = None; give a finite number in .2e-308, 1e.08"),
        (lambda: Beta(1, 5e-324), "give a finite number in .2e-308"),  # SciPy would end the process
        (lambda: Prior.from_scipy(stats.beta(1, 5e-324)), "0 or at least 2e-308"),
        (lambda: LogNormal(-1e4, 1), "log_mean = -10000.0; give a finite number in .-7e.02"),
        (lambda: EmpiricalPrior([]), "samples must not be empty.*got 0 samples"),
        (lambda: EmpiricalPrior([1], [0.5]), r"counts must be a whole number.*\[0.5\]"),
        (lambda: EmpiricalPrior([1, np.nan]), r"samples\[1\] must be a finite number >= 0"),
        (lambda: Prior.from_scipy(stats.poisson(3)), "not a prior; give .*EmpiricalPrior"),
        (lambda: Prior.from_scipy(stats.gamma), "not a prior; give .*a frozen continuous"),
        (lambda: Mixture([1], [_Spiked(a=0, b=1)]), r"subclass of .*\(support, cdf, pdf\)"),
        (lambda: Prior.from_scipy(stats.norm(1, 1)), r"\[-inf, inf\].*truncate or shift"),
        (lambda: Prior.from_scipy(stats.gamma(-1)), "each parameter one valid value"),
        (lambda: histogram([1, 0, 1], [0, 1, 2, 3]), r"density is 0.0 at c = 1.*\[0, 3\]"),
        (
            lambda: Prior.from_scipy(_Spiked(a=0, b=1)()),
            r"density is inf at c = 0.5.*EmpiricalPrior\(samples\)",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_priors_without_a_virtual_cost_are_refused(make, words):
    with pytest.raises(PriorError, match=words):
        make()


def test_an_empirical_prior_has_no_density():
    with pytest.raises(PriorError, match="is discrete and has no density; use cdf"):
        EmpiricalPrior([1, 2]).pdf(1)


@pytest.mark.parametrize("prior", [Uniform(0.02, 0.1), EmpiricalPrior([0.02, 0.1])], ids=repr)
def test_virtual_cost_refuses_reports_below_the_support(prior):
    for cost in (prior.virtual_cost, prior.ironed_virtual_cost):
        with pytest.raises(PriorError, match=r"2 of 3 .*below the support \[0.02, 0.1\].*c\[1\]\."):
            cost([0.05, 0.01, np.nan])
        with pytest.raises(ParameterError, match="c must hold numbers"):
            cost("much")


def test_check_reports_names_the_first_invalid_report():
    Uniform(0.02, 0.1).check_reports([0.02, 0.1])
    Exponential(1).check_reports([])
    with pytest.raises(
        PriorError, match=r"2 of 3 sensitivities are not in the support.*c\[1\]\..*declare"
    ):
        Uniform(0.02, 0.1).check_reports([0.05, 0.2, 0.01])
    with pytest.raises(PriorError, match=r"\[0, inf\].*c\[0\]"):
        Exponential(1).check_reports([np.inf])
    with pytest.raises(PriorError, match="not in the support"):
        Exponential(1).check_reports([np.nan])


@pytest.mark.parametrize("u", [-0.1, 1.1, np.nan])
def test_quantile_refuses_values_outside_the_unit_interval(u):
    for prior in (Uniform(0, 1), EmpiricalPrior([1, 2])):
        with pytest.raises(ParameterError, match="give 0 <= u <= 1"):
            prior.quantile([0.5, u])


class _Ramp(Prior):
    """User-defined prior with a support, a cdf and a pdf."""

    def __init__(self, high):
        self.support = (0.0, high)

    def cdf(self, c):
        return np.clip(np.asarray(c) / self.support[1], 0, 1) ** 2

    def pdf(self, c):
        return 2 * np.asarray(c) / self.support[1] ** 2


class _Tail(Prior):
    """User-defined prior with an unbounded support."""

    support = (0.5, np.inf)

    def cdf(self, c):
        return -np.expm1(-np.maximum(np.asarray(c) - 0.5, 0))

    def pdf(self, c):
        return np.exp(-(np.asarray(c) - 0.5))


@pytest.mark.parametrize(
    ("prior", "same"),
    [
        (_Ramp(2.0), Power(2, 2.0)),
        (_Tail(), Prior.from_scipy(stats.expon(loc=0.5))),
        (_Ramp(1e-8), Power(2, 1e-8)),
    ],
    ids=["bounded", "unbounded", "small"],
)
def test_a_cdf_and_a_pdf_define_a_prior(prior, same):
    u = np.linspace(0, 1, 41)
    c = same.quantile(u[1:-1])
    np.testing.assert_allclose(prior.quantile(u), same.quantile(u), rtol=1e-12)
    np.testing.assert_allclose(prior.ironed_virtual_cost(c), same.virtual_cost(c), rtol=1e-12)
    assert prior.mean == pytest.approx(same.mean, rel=1e-8)
    assert prior.is_regular
    assert prior != type(prior).__new__(type(prior))
    assert stats.kstest(prior.sample(2000, 0), same.cdf).pvalue > 1e-3
    market = [
        cm.Market.standard(cm.Sellers(c, each), mu=1, sigma=1, gamma=0.1 / same.mean)
        for each in (prior, same)
    ]
    custom, known = (cm.payments(each, cm.allocate(each)) for each in market)
    np.testing.assert_allclose(custom, known, rtol=1e-6, atol=1e-9 * known.max())
