"""Recompute numbers of the documentation that do not come from reports or code blocks."""

import re

import numpy as np
import pytest

from convexmarket.privacy.accounting import calibrate_eta
from convexmarket.privacy.sensitivity import ridge_sensitivity
from convexmarket.release.scales import calibrate, interactive_epsilon
from tests import ROOT

DOCS = ROOT / "docs"


def test_the_gain_of_the_sharp_accounting_equals_the_number_on_the_page():
    text = " ".join((DOCS / "howto/audits.md").read_text().split())
    written = re.search(
        r"For 500 rows .*? of eta is (.*?) for `regularization=1`, (.*?) for 0.1, and (.*?) for "
        r"0.01 ",
        text,
    ).groups()
    weights = np.full(500, 1 / 500)
    for regularization, number in zip((1.0, 0.1, 0.01), written, strict=True):
        sharp, paper = (
            calibrate_eta(weights, 1500.0, regularization, accounting=accounting)
            for accounting in ("sharp", "paper")
        )
        assert float(number) == round(sharp / paper, 1)


def test_the_odds_in_the_table_of_epsilons_follow_from_bayes():
    pattern = r"^\| ([\d.]+) \| ([\d.]+)% \| ([\d.]+)% \|$"
    rows = re.findall(pattern, (DOCS / "idea.md").read_text(), re.MULTILINE)
    assert len(rows) == 5
    for epsilon, even, small in np.array(rows, dtype=float):
        odds = np.exp(epsilon)
        assert even == pytest.approx(100 * odds / (1 + odds), abs=0.051)
        assert small == pytest.approx(100 * odds / (odds + 99), abs=0.051)


def test_noise_factors_of_the_interactive_release_equal_the_numbers_on_the_page():
    text = " ".join((DOCS / "theory/releases.md").read_text().split())
    pattern = r"is (\d+) times smaller for \$B=1\$, (\d+) times smaller for \$B=10\$ and (\d+)"
    for updates, number in zip((1, 10, 100), re.search(pattern, text).groups(), strict=True):
        single = np.ones(1)
        scale, _ = calibrate(single, single, interactive_epsilon(updates, 1e-6, "tight"))
        published = 200 * np.sqrt(updates) * np.log(4 / 1e-6)
        assert int(number) == round(published / scale)


def test_the_factor_of_the_published_ridge_constant_equals_the_number_on_the_page():
    text = " ".join((DOCS / "theory/ridge.md").read_text().split())
    pattern = r"published constant, .*?, is ([\d.]+) times as large as .*? and causes (\d+) times"
    factor, excess = map(float, re.search(pattern, text).groups())
    tight, published = (ridge_sensitivity(1e-8, 3, sensitivity=s) for s in ("tight", "paper"))
    assert factor == pytest.approx(published / tight, abs=0.05)
    assert excess == pytest.approx((published / tight) ** 2, abs=0.5)
