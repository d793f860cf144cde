"""The report of the ridge comparison: what it says of published figures and of baselines."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from convexmarket.lab import build_report, run_problem
from convexmarket.lab.problem.loading import load_problem
from convexmarket.lab.report.parts import short
from tests import PROBLEMS
from tests.lab.report.builders import altered, facts, stored, table, words, words_of


@pytest.fixture(scope="module")
def result():
    return stored("ridge-comparison")


@pytest.fixture(scope="module")
def report(result):
    return build_report(result)


def test_every_published_table_is_shown_beside_ours(report) -> None:
    names = {piece.name for piece in report.tables}
    assert {f"table_{k}_{loss}" for k in (4, 6, 14) for loss in ("unreg", "reg")} <= names
    shown = table(report, "table_4_reg")
    assert list(shown)[:3] == ["value", "pdp_op_published", "pdp_op_ours"]
    assert shown["pdp_op_published"].iloc[0] == 122000


def test_no_table_is_wider_than_the_page(report) -> None:
    assert max(piece.frame.shape[1] for piece in report.tables) <= 9


def test_what_the_baselines_do_not_guarantee_is_said(report) -> None:
    said = words_of(report, "What is guaranteed")
    assert "only the threshold is guaranteed" in said
    assert "The non-private regression guarantees nothing." in said


def test_that_the_bound_has_no_minimum_is_said(report, result) -> None:
    assert result.numbers["best_regularization"] is None
    assert "falls all the way to the right" in words(report)


def test_a_minimum_is_said_and_drawn(result) -> None:
    bound = result.tables["bound"].assign(
        total=1 + (result.tables["bound"].regularization - 0.5).abs()
    )
    report = build_report(altered(result, bound=bound, best_regularization=0.5))
    assert "the bound of Theorem 3.6 is smallest at λ = 0.5" in words(report)
    assert "has the smallest expected test loss" in words(report)
    assert "falls all the way to the right" not in words(report)
    (figure,) = (one for one in report.figures if one.name == "error_bound")
    assert figure.draw().axes


def test_cells_that_are_printed_twice_are_said_to_be(result) -> None:
    again = (
        result.tables["published"][result.tables["published"].statistic == "mean"]
        .head(5)
        .assign(file="again.csv")
    )
    twice = altered(result, published=pd.concat([result.tables["published"], again]))
    assert "5 cells printed in two tables are counted in both." in words(build_report(twice))
    assert "printed in two tables" not in words(build_report(result))


def test_where_a_baseline_is_better_it_is_said() -> None:
    problem = load_problem(
        PROBLEMS / "ridge-weights.toml", ["run.draws=3", "run.samples=5", "run.jobs=1"]
    )
    report = build_report(run_problem(problem))
    assert "has a smaller loss than PDP-OP" in words(report)
    assert not any("tight" in label for label in facts(report))


def test_the_first_sentence_counts_the_published_cells_and_the_order(result) -> None:
    rng = np.random.default_rng(0)
    for share in (0.0, 0.3, 1.0):
        close = rng.random(len(result.tables["published"])) < share
        holds = rng.random(len(result.tables["orderings"])) < share
        doctored = altered(
            result,
            published=result.tables["published"].assign(close=close),
            orderings=result.tables["orderings"].assign(ours=holds),
        )
        text = words(build_report(doctored))
        first = holds[result.tables["orderings"].sweep == 0]
        assert text.startswith(f"{close.sum()} of {len(close)} published cells are within")
        assert f"holds in our medians at {first.sum()} of {len(first)} pairs of λ" in text
        said = f"Of the {(~close).sum()} published cells that are not close" in text
        assert said == (not close.all())


LEVELS = st.sampled_from([0.25, 0.5, 1.0, 1.0 + 1e-12, 1.25, 40.0])


@given(
    ratios=arrays(float, 196, elements=LEVELS),
    gained=arrays(float, 76, elements=LEVELS),
    losses=arrays(float, 266, elements=LEVELS),
    held=arrays(bool, (38, 3)),
)
def test_what_is_said_follows_from_the_tables(ratios, gained, losses, held) -> None:
    result = stored("ridge-comparison")
    close = (ratios >= 1 / 1.5) & (ratios <= 1.5)
    published = result.tables["published"].assign(ratio=ratios, close=close)
    cells = result.tables["cells"].assign(mean=losses, std=losses[::-1])
    gains = result.tables["gains"].assign(ratio=gained)
    orderings = result.tables["orderings"].assign(
        ours=held[:, 0] & held[:, 1], in_order=held[:, 0], share_of_draws=held.mean(axis=1)
    )
    parts = {"published": published, "cells": cells, "gains": gains, "orderings": orderings}
    text = words(build_report(altered(result, **parts)))
    assert text.startswith(f"{close.sum()} of 196 published cells are within a factor of 1.5")
    for number, over in ((0, "λ"), (1, "the ε of the conservatives")):
        own = orderings[orderings.sweep == number]
        holds = f"holds in our medians at {own.ours.sum()} of {len(own)} pairs of "
        share = f"loss, in {100 * own.share_of_draws.mean():.1f}% of all draws"
        assert re.search(rf"Over {over} it {holds}.*? and {share}\.", text)
        others = f" {(own.in_order & ~own.ours).sum()} of the {(~own.ours).sum()} others have"
        assert (others in text) or own.ours.all()
        wide = cells[cells.sweep == number].pivot_table(
            ["mean", "std"], ["value", "loss"], "method"
        )
        low = {
            of: wide[of][["jorgensen_max", "jorgensen_mean"]].min(axis=1) for of in ("mean", "std")
        }
        steady = int((wide["std"].pdp_op < low["std"] * (1 - 1e-9)).sum())
        assert f"below those of Jorgensen et al. at {steady} of {len(own)} pairs" in text
        beaten = int((low["mean"] < wide["mean"].pdp_op * (1 - 1e-9)).sum())
        baseline = f"At {beaten} pair{'s' * (beaten != 1)} a baseline of Jorgensen et al."
        assert (baseline in text) == (beaten > 0)
    for method, start in (
        ("pdp_op_tight", "less noise. The ratio of expected losses is"),
        ("pdp_op_optimal", "than pays. The ratio of expected losses is"),
    ):
        own = gains[gains.method == method].ratio
        below, above = (own < 1 - 1e-9).sum(), (own > 1 + 1e-9).sum()
        told = (
            f"{start} below one at {below} of {len(own)} pairs of value and loss and above one at"
        )
        assert (f"{told} {above}; it lies between {short(own.min())} (" in text) == bool(
            len(own) and (below + above or method == "pdp_op_tight")
        )
    mine = cells[(cells.parameter == "regularization") & (cells.method == "pdp_op")]
    mine = mine[mine.loss == "unreg"]
    at = mine.value[mine["mean"] == mine["mean"].min()]
    told = re.search("smallest expected test loss of PDP-OP is at λ = (.*?), an end", text)
    assert bool(told) == (at.iloc[0] in (mine.value.min(), mine.value.max()))
    assert not told or float(told[1]) in set(at)


def test_the_way_that_is_best_is_the_one_of_the_smallest_loss(result) -> None:
    names = ["objective", "huber"]
    learner = result.problem.learner.model_copy(update={"perturbations": tuple(names)})
    problem = result.problem.model_copy(update={"learner": learner})
    cells = result.tables["cells"]
    known = cells[cells.method == "pdp_op"]
    for factors in ((2.0, 3.0), (1.0, 1.0), (0.5, 0.5), (np.nan, 0.25)):
        more = [
            known.assign(method=name, mean=known["mean"] * factor)
            for name, factor in zip(names, factors, strict=True)
        ]
        report = build_report(altered(result, problem=problem, cells=pd.concat([cells, *more])))
        best = (
            "PDP-OP" if np.nanmin(factors) >= 1 else ("objective perturbation", "Huber objective")
        )
        best = best if isinstance(best, str) else best[int(np.isnan(factors[0]))]
        first = words(report)[: words(report).index(".", 100) + 3]
        assert f"smallest with {best}" in first
        assert (f"down to {np.nanmin(factors):g} times" in words(report)) == (best != "PDP-OP")


def test_a_published_column_outside_all_draws_is_said_not_to_come_out(result) -> None:
    published = result.tables["published"]
    column = (published.sweep == 1) & (published.method == "pdp_op") & (published.loss == "reg")
    doctored = published.assign(
        percentile=published.percentile.where(~column, 1.0), close=published.close & ~column
    )
    text = words(build_report(altered(result, published=doctored)))
    ratios = published.ratio[column]
    said = "Not reproduced: Table 6, PDP-OP, regularised test loss. In the median cell all"
    assert said in text
    assert f"lies between {short(ratios.min())} and {short(ratios.max())}. The settings" in text
    below = doctored.assign(percentile=doctored.percentile.where(~column, 0.0))
    none = "In the median cell none of our draws lies below"
    assert none in words(build_report(altered(result, published=below)))
    close = published.assign(percentile=published.percentile.where(~column, 1.0), close=True)
    assert "Not reproduced:" not in words(build_report(altered(result, published=close)))


def test_a_smallest_loss_at_an_end_of_its_values_is_said_to_be_there(result) -> None:
    cells = result.tables["cells"]
    said = "an end of the values compared"
    mine = (cells.parameter == "regularization") & (cells.method == "pdp_op")
    for value, edge in ((cells.value[mine].min(), True), (0.5, False), (5.0, True)):
        doctored = cells.assign(mean=cells["mean"].mask(mine & (cells.value == value), 1e-9))
        text = words(build_report(altered(result, cells=doctored)))
        assert (said in text) == edge, value


def test_a_simulation_that_differs_is_not_said_to_agree(result) -> None:
    assert "They agree: the largest distance is" in words(build_report(result))
    far = result.tables["confirmation"].assign(z=-7.25)
    text = words(build_report(altered(result, confirmation=far)))
    assert "They do not all agree: the largest distance is 7.2 standard errors." in text


def test_one_table_may_be_compared_in_two_sweeps(result) -> None:
    again = result.tables["published"][result.tables["published"].sweep == 1].assign(sweep=0)
    both = altered(
        result, published=pd.concat([again, result.tables["published"]], ignore_index=True)
    )
    names = {piece.name for piece in build_report(both).tables}
    assert {"table_6_unreg", "table_6_unreg_2"} <= names


def test_few_tables_stand_before_the_appendix(report) -> None:
    headings = [section.heading for section in report.sections]
    body = report.sections[: headings.index("Appendix: all tables")]
    assert 0 < sum(len(section.tables) for section in body) <= 8


def test_table_11_has_other_fractions_than_its_caption_says() -> None:
    """With all rows it is Table 7's experiment (fractions .54 and .37), and not Table 1's."""
    printed = {
        number: pd.read_csv(PROBLEMS / f"published/table{number:02}.csv", index_col=0)
        for number in (1, 7, 11)
    }
    all_rows = printed[11].loc[1.0, "reg_pdp_op"]
    said = printed[1].loc[100, "reg_pdp_op"]  # fractions .34 and .43, as the caption of Table 11
    fits = printed[7].loc[0.2, "reg_pdp_op"]  # fractions .54 and .37, all else alike
    assert all_rows / said > 2
    assert abs(all_rows / fits - 1) < 0.05
