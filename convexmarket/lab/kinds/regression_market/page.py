"""The report of the market for ridge regression, in words, tables and figures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.regression_market import figures as regression_figures
from convexmarket.lab.kinds.regression_market.problem import RegressionMarketProblem
from convexmarket.lab.problem.own import OwnTable
from convexmarket.lab.report import figures
from convexmarket.lab.report.frontier import frontier_figures
from convexmarket.lab.report.model import Fact, Figure, Report, Section, Table
from convexmarket.lab.report.parts import (
    audit_section,
    audit_words,
    certificate_section,
    gap_words,
    own_data_words,
    promise_words,
    reproduction_section,
    select,
    short,
)
from convexmarket.lab.report.words import (
    count,
    equals,
    format_number,
    format_percent,
    listing,
    share,
)
from convexmarket.lab.result import Result

__all__ = ["regression_market_report"]

KEY = ["scenario", "gamma", "regularization"]
CORRELATED = "correlated"
HEADERS = {
    "gamma": "γ",
    "regularization": "λ",
    "mu": "μ",
    "sigma": "σ",
    "eta": "η, sum of ε",
    "n_sellers": "sellers",
    "n_bought": "sellers bought from",
    "epsilon": "ε sold",
    "epsilon_mean": "ε per person",
    "epsilon_max": "largest ε sold",
    "guarantee": "ε of the model",
    "uniform_epsilon": "ε at one price",
    "virtual_cost": "virtual cost ψ(c)",
    "sensitivity": "sensitivity c",
    "multiplier": "multiplier τ",
    "explained": "share explained",
    "labels": "noise of the labels",
    "privacy": "noise for privacy",
    "expected_objective": "bias + objective, expected",
}


@dataclass(frozen=True)
class Scene:
    """The curve in the units of the problem, and the point that the summary speaks about."""

    result: Result[RegressionMarketProblem]
    curve: pd.DataFrame
    point: pd.Series
    constant_rmse: float
    baselines: pd.DataFrame

    @property
    def first(self) -> pd.DataFrame:
        """The curve of the first scenario."""
        return select(self.curve, scenario=self.point.scenario)

    @property
    def where(self) -> str:
        """The point's gamma and lambda."""
        return f"{equals('γ', self.point.gamma)} and {equals('λ', self.point.regularization)}"

    @property
    def n_sellers(self) -> int:
        """How many sellers there are."""
        return int(self.result.provenance["rows"]["train"])

    @property
    def spec(self) -> str:
        """How tables write errors."""
        return ",.0f" if self.constant_rmse >= 1000 else ".4g"

    def errors(self, value: float) -> str:
        """Write an error with its unit."""
        return f"{format_number(value)} {self.result.problem.units.label}"

    def money(self, value: float) -> str:
        """Write an amount with its unit."""
        return f"{format_number(value)} {self.result.problem.units.money}".strip()

    @property
    def currency(self) -> str:
        """What axes call the unit of payments."""
        return self.result.problem.units.money or "money"

    def plain(self, regularization: float) -> float:
        """Return the error without noise at a lambda."""
        return float(select(self.baselines, regularization=regularization).rmse.iloc[0])


def regression_market_report(result: Result[RegressionMarketProblem]) -> Report:
    """Describe a market for ridge regression.

    Parameters
    ----------
    result : Result[RegressionMarketProblem]

    Returns
    -------
    Report
        To be written by :func:`convexmarket.lab.report.render.write_folder`.
    """
    scene = _scene(result)
    return Report(
        title=result.problem.title,
        summary=_summary(scene),
        sections=(
            _tradeoff_section(scene),
            _one_price_section(scene),
            _sellers_section(scene),
            _bound_section(scene),
            audit_section(result.tables["audits"], _largest_payment(result), HEADERS),
            certificate_section(result.certificates, _largest_gap(result), KEY, HEADERS),
            _guarantee_section(scene),
            reproduction_section(result.problem, result.provenance, result.timings),
        ),
        results=result,
        facts=_facts(scene),
        of_sellers=isinstance(result.problem.data, OwnTable),
    )


def _scene(result: Result[RegressionMarketProblem]) -> Scene:
    """Write errors in the problem's units, and take the middle gamma with the marked lambda."""
    scale = result.problem.units.per_label
    curve = result.tables["curve"].copy()
    for column in ("rmse", "rmse_low", "rmse_high", "uniform_rmse"):
        curve[column] *= scale
    constant = result.numbers["constant_rmse"] * scale
    curve["uniform_explained"] = 1.0 - (curve.uniform_rmse / constant) ** 2
    marked = select(curve, scenario=curve.scenario.iloc[0], marked=True).sort_values("gamma")
    return Scene(
        result,
        curve,
        marked.iloc[len(marked) // 2],
        constant,
        result.tables["baselines"].assign(rmse=result.tables["baselines"].rmse * scale),
    )


def _largest_gap(result: Result[RegressionMarketProblem]) -> float:
    return max(0.0, float(result.tables["curve"].gap.max()))


def _largest_payment(result: Result[RegressionMarketProblem]) -> float:
    return float(result.tables["curve"].payments.max())


# ---------------------------------------------------------------- the summary


def _facts(scene: Scene) -> tuple[Fact, ...]:
    point, audits = scene.point, scene.result.tables["audits"]
    honest = audits.incentive_compatible.all() and audits.individually_rational.all()
    return (
        Fact(
            f"sellers bought from, at {scene.where}",
            f"{int(point.n_bought):,} of {scene.n_sellers:,}",
        ),
        Fact("total payments there", scene.money(point.payments)),
        Fact("test RMSE there", scene.errors(point.rmse)),
        Fact("without privacy, same λ", scene.errors(scene.plain(point.regularization))),
        Fact("predicting a constant", scene.errors(scene.constant_rmse)),
        Fact(
            "no lie of one seller pays and nobody loses, in the audit",
            "yes" if honest else "no",
        ),
    )


def _summary(scene: Scene) -> tuple[str, ...]:
    paragraphs = [
        *own_data_words(scene.result.problem, scene.result.provenance),
        " ".join(scene.result.problem.description.split()),
        _outcome_words(scene),
        _hindsight_words(scene),
        _one_price_words(scene),
        _privacy_words(scene),
        f"{gap_words(_largest_gap(scene.result))} "
        f"{audit_words(scene.result.tables['audits'], _largest_payment(scene.result))}",
    ]
    return tuple(text for text in paragraphs if text)


def _outcome_words(scene: Scene) -> str:
    point = scene.point
    return (
        f"At {scene.where}, the buyer buys from "
        f"{share(int(point.n_bought), scene.n_sellers, 'seller')}, an ε of "
        f"{short(point.epsilon_mean)} per person on average over all, and pays "
        f"{scene.money(point.payments)} in total. The expected test RMSE of the regression "
        f"trained under exactly that privacy is {scene.errors(point.rmse)}; it is "
        f"{scene.errors(scene.plain(point.regularization))} for the same regression on all rows "
        f"without noise, and {scene.errors(scene.constant_rmse)} for predicting a public "
        f"constant. Of the squared error of that constant, the released model explains "
        f"{format_percent(point.explained)}."
    )


def _hindsight_words(scene: Scene) -> str:
    """Compare the marked lambda with the one that the test rows would have chosen."""
    if len(scene.result.problem.learner.regularization) == 1:
        return "Only one λ was considered; it was fixed before anything was read."
    rows = select(scene.first, gamma=scene.point.gamma)
    best = rows.sort_values("rmse").iloc[0]
    overall = scene.first.sort_values("rmse").iloc[0]
    marked = (
        "The λ spoken about is the one with the best bound of Theorem 3.6 that can be computed "
        "from the prior alone"
    )
    if best.regularization == scene.point.regularization:
        agreed = f"{marked}; at this γ it has the smallest test error too."
    else:
        agreed = (
            f"{marked}. At this γ, {equals('λ', best.regularization)} has the smaller test error, "
            f"{scene.errors(best.rmse)}; who had fixed it in advance would have had it, but "
            "nobody may choose it after seeing this page and keep the guarantees."
        )
    return (
        f"{agreed} The smallest error of all is {scene.errors(overall.rmse)} "
        f"({format_percent(overall.explained)} explained), at {equals('γ', overall.gamma)} and "
        f"{equals('λ', overall.regularization)}, for {scene.money(overall.payments)}."
    )


def _one_price_words(scene: Scene) -> str:
    rows = scene.curve.dropna(subset=["uniform_rmse"])
    if rows.empty:
        return ""
    wins = int((rows.rmse < rows.uniform_rmse).sum())
    price = scene.money(scene.result.problem.prior.support[1])
    return (
        f"A buyer who spends the same on everybody alike, {price} per unit of ε, the one price "
        f"that nobody refuses, has a larger test error at {share(wins, len(rows), 'point')} "
        f"of the comparison. There, one price buys "
        f"{short(float((rows.uniform_epsilon / rows.epsilon_mean).median()))} times as much "
        "privacy as the market for the same money (median)."
    )


def _privacy_words(scene: Scene) -> str:
    largest = float(scene.point.epsilon_max)
    return (
        f"The largest guarantee sold at {scene.where} is {equals('ε', largest)}, and the "
        f"guarantee of the trained model is just what was sold, for everybody: "
        f"{promise_words(largest)} The largest at any point of this page is "
        f"{equals('ε', float(scene.curve.epsilon_max.max()))}."
    )


# ---------------------------------------------------------------- the sections


def _tradeoff_section(scene: Scene) -> Section:
    draws = scene.result.problem.learner.draws
    z = _simulation_deviation(scene.result)
    highest = regression_figures.HIGHEST * scene.constant_rmse
    plain = float(scene.baselines.rmse.min())
    figure = Figure(
        "tradeoff",
        "Expected test RMSE over total payments, one line per λ and one point per γ: the lowest "
        "line at a sum is the best use of it. Band: 10% "
        f"to 90% of {count(draws, 'simulated release')}. Errors above {scene.errors(highest)} run "
        "out of the picture; the line without privacy is that of the best λ.",
        partial(
            regression_figures.error_over_payments,
            scene.curve,
            scene.constant_rmse,
            plain,
            scene.result.problem.units.label,
            scene.currency,
        ),
        "Test error falls as payments rise, towards the error without privacy. The numbers are "
        "in the table tradeoff.",
    )
    curve, sellers = (
        frame.assign(series=[f"λ = {format_number(value)}" for value in frame.regularization])
        for frame in (scene.curve, scene.result.tables["sellers"])
    )
    units = scene.result.problem.units
    frontiers = frontier_figures(
        curve.rename(columns={"rmse": "error"}),
        sellers,
        f"test RMSE ({units.label})",
        f"total payments ({scene.currency})",
        scene.currency,
    )
    columns = [
        "n_bought",
        "payments",
        "epsilon_mean",
        "epsilon_max",
        "rmse",
        "explained",
    ]
    table = Table(
        "tradeoff",
        f"What is bought, what it costs and how well it predicts; errors in "
        f"{scene.result.problem.units.label}. Marked is the λ with the best public bound.",
        scene.curve[[*KEY, "marked", *columns]],
        HEADERS | {"rmse": "test RMSE"},
        {"explained": ".1%", "rmse": scene.spec},
    )
    baselines = Table(
        "baselines",
        f"Test RMSE of the same regression on all rows alike, without noise, in "
        f"{scene.result.problem.units.label}.",
        scene.baselines,
        HEADERS | {"rmse": "test RMSE"},
        {"rmse": scene.spec},
    )
    return Section(
        "The trade-off between error and payments",
        (
            "A larger γ buys less, from fewer, and pays less. A larger λ needs less noise for the "
            "same privacy and shrinks the model more: where little is bought it is the better "
            "one, and where much is bought it is what keeps the error up.",
            "Errors are expectations over the noise, in closed form: the squared error is a "
            f"quadratic in it. As a check, {count(draws, 'release')} of every model were "
            f"simulated; their mean lies within {short(z)} standard errors of the formula at every "
            "point. All points are simulated with the same seeds, so these deviations go together.",
        ),
        figures=(figure, *frontiers),
        tables=(table, baselines, _simulation_table(scene)),
    )


def _simulation_table(scene: Scene) -> Table:
    scale = scene.result.problem.units.per_label
    errors = ["rmse", "simulated_rmse", "rmse_low", "rmse_high"]
    return Table(
        "simulation",
        "The expected error in closed form, the same from simulated releases, and the error that "
        f"10% and 90% of these stay below; in {scene.result.problem.units.label}.",
        scene.curve.assign(simulated_rmse=scale * np.sqrt(scene.curve.simulated_loss))[
            [*KEY, *errors]
        ],
        HEADERS
        | {
            "rmse": "expected test RMSE",
            "simulated_rmse": "simulated",
            "rmse_low": "10% of releases",
            "rmse_high": "90% of releases",
        },
        dict.fromkeys(errors, scene.spec),
        rows_shown=5,
    )


def _simulation_deviation(result: Result[RegressionMarketProblem]) -> float:
    curve = result.tables["curve"]
    deviations = (curve.simulated_loss - curve.loss_mean).abs() / curve.simulated_error
    return float(deviations.max())


def _one_price_section(scene: Scene) -> Section:
    rows = scene.first
    if rows.uniform_rmse.isna().all():
        return Section(
            "Compared with one price for all",
            ("The prior has no largest sensitivity, so no price is one that nobody refuses.",),
        )
    figure = Figure(
        "one_price",
        f"Share of the constant's squared error that is explained, over total payments "
        f"({scene.point.scenario} sensitivities). Below zero the constant predicts better; "
        f"what lies below {format_percent(regression_figures.LOWEST_SHARE)} is out of the picture.",
        partial(regression_figures.market_and_one_price, rows, scene.currency),
        "The market's share explained lies above that of one price for all. The numbers are in "
        "the table one-price.",
    )
    return Section(
        "Compared with one price for all",
        (
            "The naive purchase pays everybody the same price per unit of ε and buys the same ε "
            "from everybody. To be accepted whatever the sensitivity, the price is the largest "
            "sensitivity of the prior; then it is truthful as well. It spends what the market "
            "spends.",
            _one_price_words(scene),
        ),
        figures=(figure,),
        tables=(
            Table(
                "one-price",
                f"The market and one price for all, at the same expense; errors in "
                f"{scene.result.problem.units.label}.",
                scene.curve[
                    [*KEY, "payments", "epsilon_mean", "rmse", "uniform_epsilon", "uniform_rmse"]
                ],
                HEADERS | {"rmse": "test RMSE", "uniform_rmse": "test RMSE at one price"},
                dict.fromkeys(["rmse", "uniform_rmse"], scene.spec),
            ),
        ),
    )


def _sellers_section(scene: Scene) -> Section:
    result, scenario = scene.result, str(scene.point.scenario)
    offers = select(result.tables["sellers"], marked=True)
    gammas = sorted(set(offers.gamma))
    few = sorted({gammas[0], gammas[len(gammas) // 2], gammas[-1]})
    shown = offers[offers.gamma.isin(few)]
    listed = listing([short(gamma) for gamma in few])
    words = _bought_words(scene, few)
    prose = [
        "A seller with a larger sensitivity sells less, and above a threshold nothing: its row is "
        f"not used and it is paid nothing. {words}",
    ]
    if CORRELATED in set(offers.scenario):
        feature = result.problem.sellers.correlated_with
        name = f"{feature!r}" if isinstance(feature, str) else f"number {feature}"
        prose.append(
            "In the correlated scenario the seller with the k-th smallest sensitivity owns the row "
            f"with the k-th smallest value of the feature {name}. Weights and payments are then "
            "functions of something that goes with the rows, and publishing them tells about "
            "these; the guarantee says what the model adds to that."
        )
    return Section(
        "Who sells what, and what it is paid",
        tuple(prose),
        figures=(
            Figure(
                "who_is_bought_from",
                f"Privacy sold by each seller against its sensitivity, at γ = {listed} and the λ "
                "marked there. The dearer a seller, the less it sells; where the points "
                "reach zero, or end, nobody dearer is bought from.",
                partial(figures.who_is_bought_from, shown, scene.currency),
                f"Scatter of epsilon against sensitivity. {words}",
            ),
            Figure(
                "distributions",
                f"Privacy sold and payments of those bought from ({scenario} sensitivities), at γ "
                f"= {listed} and the λ marked there: bars far to the right are sellers who give "
                "up, or receive, much more than others. Each panel has its own scale.",
                partial(figures.distributions, select(shown, scenario=scenario), scene.currency),
                f"Histograms of epsilon and of payments. {words}",
            ),
        ),
        tables=(
            Table(
                "sellers",
                "Offers to sellers at the λ marked for each γ; the surplus is the payment minus "
                "the seller's cost.",
                offers.drop(columns="marked"),
                HEADERS,
                rows_shown=15,
                complete=result.tables["sellers"],
            ),
        ),
    )


def _bought_words(scene: Scene, gammas: list[float]) -> str:
    parts = []
    for gamma in gammas:
        offers = select(
            scene.result.tables["sellers"], scenario=scene.point.scenario, gamma=gamma, marked=True
        )
        bought = offers[offers.epsilon > 0]
        where = f"at {equals('γ', gamma)}, {share(len(bought), len(offers), 'seller')}"
        parts.append(f"{where}, up to a sensitivity of {short(float(bought.sensitivity.max()))}")
    return f"With {scene.point.scenario} sensitivities: {'; '.join(parts)}."


def _bound_section(scene: Scene) -> Section:
    result, point = scene.result, scene.point
    learner = result.problem.learner
    figure = Figure(
        "bound",
        f"The three terms of Theorem 3.6 for what was bought ({point.scenario} sensitivities). "
        "Where a bar stands above the dashed line, the bound promises less than the zero model "
        "keeps.",
        partial(regression_figures.bound_terms, scene.first, learner.coef_norm),
        "Stacked bars of the three terms over gamma, one panel per lambda. The numbers are in the "
        "table bound.",
    )
    money = result.problem.units.money
    per = f" per {money.removesuffix('s')}" if money else ""
    return Section(
        "What the buyer's objective means",
        (
            "With probability at least "
            f"{format_percent(1 - learner.failure_probability)}, the coefficients that are "
            "released lie within bias + μ‖a‖ + σ/η of the true ones (Theorem 3.6 of Acharya et "
            "al.), where a are the "
            "weights of the rows and η is the sum of all ε sold: who sells ε = aη is covered by "
            "noise of rate η/κ. μ = (s/λ)√(2d/δ) comes from the noise of the labels, and σ = κ(d "
            "+ √(2d/δ)) from that of the privacy. So μ and σ are not tuned, and γ is a price: "
            f"units of coefficient error, on the scale of labels in [-1, 1],{per or ' per unit'} "
            "paid.",
            _vacuous_words(scene),
            "Which λ? Each is a market of its own. The one marked has the smallest bias + "
            "μ‖a‖ + σ/η + γ × payments in a market of as many sellers whose sensitivities are the "
            "quantiles of the prior. That uses the prior, the number of sellers and the public "
            "assumptions, and no report and no row: so sellers cannot move it by their reports, "
            "and it costs no privacy.",
        ),
        figures=(figure,),
        tables=(
            Table(
                "choices",
                "What the bound promises for every λ before reports are known: its bias, and that "
                "with the objective in the market at the prior's quantiles.",
                result.tables["choices"],
                HEADERS,
            ),
            Table(
                "bound",
                "The terms of the bound for what was bought.",
                result.tables["curve"][
                    [*KEY, "mu", "sigma", "eta", "bias", "labels", "privacy", "bound"]
                ],
                HEADERS,
            ),
        ),
    )


def _vacuous_words(scene: Scene) -> str:
    """Say where the bound is worse than no model at all, and what its bias term rests on."""
    learner, curve = scene.result.problem.learner, scene.result.tables["curve"]
    worse = int((curve.bound >= learner.coef_norm).sum())
    text = (
        f"The bound is above {short(learner.coef_norm)}, the assumed norm of the true coefficients "
        f"and so the error of the zero model, at {share(worse, len(curve), 'point')}"
    )
    text += (
        ": there it ranks purchases, and promises nothing of any one of them."
        if worse
        else ", so it says something everywhere."
    )
    if learner.smallest_eigenvalue == 0:
        text += (
            " No positive lower bound on the smallest eigenvalue of the weighted second moments "
            "is assumed. Then the bias term is the same for every λ, and the rest falls with λ: "
            "the bound always marks the largest λ on offer, and leaves out that a large λ "
            "shrinks the model."
        )
    return text


def _guarantee_section(scene: Scene) -> Section:
    result, learner = scene.result, scene.result.problem.learner
    guarantee = result.numbers["guarantee"]
    kept = np.max(result.tables["sellers"].guarantee - result.tables["sellers"].epsilon)
    exact = "never above it" if kept <= 0 else f"up to {short(kept)} above it"
    return Section(
        "What is guaranteed, and on which assumptions",
        points=(
            "Privacy of the model: each seller's ε holds for the released coefficients, replacing "
            f"that seller's row by any other. Mechanism: {guarantee['mechanism']}, by "
            f"{guarantee['accounting']}. The guarantee of every trained model was compared with "
            f"what was sold, seller by seller: {exact}.",
            f"That assumes: {'; '.join(guarantee['assumptions'])}.",
            "The public ranges are those of the problem file: features in [0, 1], labels in "
            f"[{short(learner.target_range[0])}, {short(learner.target_range[1])}].",
            "Incentives: truth is each seller's best reply, alone, when the prior of sensitivities "
            "is common knowledge and correct, when λ, γ, μ and σ were fixed before any report, and "
            "when the allocation is a global optimum (see the certificate). "
            "μ and σ follow from public numbers, so nothing was tuned on rows that are sold. "
            "Sellers can misstate their sensitivity but not their data or their labels; those who "
            "agree to lie together may gain.",
            f"Accuracy: Theorem 3.6 assumes a linear label with independent Gaussian noise of "
            f"standard deviation {short(learner.label_noise)} and true coefficients of norm at "
            f"most {short(learner.coef_norm)}, both on the scale of labels in [-1, 1]. Both are "
            "declared and not measured; privacy and truthfulness do not rest on them.",
            "Payments carry no privacy guarantee: they depend on the reported sensitivities, and "
            "so reveal something about them to whoever sees the payments.",
            *result.caveats,
        ),
    )
