"""Files of kind "market" with a learner: error against payments over gamma.

A classifier follows Algorithm 2 of A (its Fig. 2): for every gamma the buyer considers a few mu,
sigma and Lambda. The purchase with the smallest validation error plus gamma times payments is
selected. The naive model of the papers, mu = sigma = 0, chooses its eta in the same
way. For ridge regression mu and sigma are the constants of Theorem 3.6 of R for a lambda that is
fixed in advance. All models are trained on paired noise draws.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import AfterValidator, ConfigDict, Field, model_validator

from convexmarket import errors, learners
from convexmarket.allocation import allocate
from convexmarket.data.datasets import MarketData, RegressionData, correlate
from convexmarket.deal import Deal, buy
from convexmarket.learners import ridge_math
from convexmarket.market import Market
from convexmarket.privacy.sensitivity import ridge_sensitivity
from convexmarket.report import Report
from convexmarket.sellers import Sellers
from convexmarket.studies.files import file_tables as tables
from convexmarket.studies.files import market_page
from convexmarket.studies.files.market_page import CHARGED, MECHANISM, NAIVE
from convexmarket.studies.files.people import SOLD, Data, OwnData, People, read_people
from convexmarket.studies.runs import Runs
from convexmarket.studies.study import Study
from convexmarket.studies.subproblems import problem_classes
from convexmarket.studies.subproblems.models import draw_ridge
from convexmarket.terms import Cap, GroupShare, Noise, Spread

Floats = NDArray[np.float64]
#: A DataFrame: its columns have known types.
Frame = Any
#: Tables with their keys, and facts.
_Measured = tuple[dict[str, tuple[Sequence[str], Frame]], dict[str, Any]]

#: The scenario of the reports in a user's table.
REPORTED = "reported"
#: The branch of the seed for sensitivities.
_SENSITIVITIES = 0
#: Number of audited sellers, and of misreports of each.
_AUDIT = {"audit_sellers": 200, "misreports": 17}
#: Arguments of constructors without a key in the file.
_OURS = {"regularization", "epsilon", "random_state", "features", "classes"}

CAVEATS = (
    "The guarantees are those of one model whose parameters are fixed before reports and rows are "
    "read. They do not cover a choice between models, nor the release of several.",
    "Incentives are audited in each market, with fixed parameters. A choice between candidates by "
    "their total payments depends on the reports, and is not truthful.",
    "The noise comes from the seed of the problem file, which is public; a release draws fresh "
    "noise. Validation and test use the same draws.",
)
CAVEATS_OF_RIDGE = (
    *CAVEATS,
    "Theorem 3.6 bounds coefficients in the worst case and assumes a linear label with Gaussian "
    "noise. Truthfulness and privacy hold without that; the quality of the purchase does not.",
    "The expected errors are computed from the sold rows, without a guarantee.",
)

# ------------------------------------------------------------------------------------- tables

_Scenarios = Annotated[
    tuple[Literal["independent", "correlated"], ...],
    Field(strict=False, min_length=1, max_length=2),
    AfterValidator(tables.listed_once),
]


class ReportsTable(tables.Table):
    """The reports of the sellers, and their relation to the rows."""

    sensitivities: tables.Reports | None = None
    """One per training row; drawn from the prior by default."""
    scenarios: _Scenarios = ("independent",)
    """If "correlated", the k-th smallest sensitivity belongs to the row with the k-th smallest
    value of a feature (B, section 5)."""
    correlated_with: tables.Column | Annotated[int, Field(ge=0, le=tables.MOST_ENTRIES)] = 0
    """That feature, by name or position."""


class BuyerTable(tables.Table):
    """The buyer's objective and constraints."""

    gamma: tables.Positives
    """Weights of the payments: the price of money in units of the objective."""
    cap: Annotated[float, Field(ge=1)] | None = None
    """Largest weight, in multiples of the average."""


class CandidatesTable(BuyerTable):
    """The buyer's objective and constraints, with candidates for its weights."""

    mu: tables.Positives | None = None
    """Weights of the spread; by default the constant of the learner's error bound."""
    sigma: tables.Positives | None = None
    """Weights of the noise; by default the constant of the learner's error bound."""


class LearnerTable(tables.Table):
    """A private learner. Other keys are arguments of its constructor."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"additionalProperties": tables.ARGUMENT}
    )

    name: tables.Column = "PrivateLogisticRegression"
    """A class of convexmarket.learners; :class:`convexmarket.Study` takes others."""
    regularization: tables.Positives | Literal["auto"]
    """Candidates, or "auto": the public rule of a classifier."""
    draws: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Noise draws of each model; by default 15 for a classifier and 200 for a regression."""
    tuning: Literal["free", "charged"] = "free"
    """Whether Lambda is also chosen privately, within the privacy sold ("charged")."""

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        given = (self.model_extra or {}).items()
        return {key: tuple(value) if isinstance(value, list) else value for key, value in given}

    @property
    def candidates(self) -> tuple[Any, ...]:
        """The values of the regularization."""
        return ("auto",) if self.regularization == "auto" else self.regularization


class RidgeTable(LearnerTable):
    """PersonalizedRidge, which maps labels from ``target_range`` to [-1, 1].

    Other keys are arguments of its constructor.
    """

    name: Literal["PersonalizedRidge"]
    regularization: tables.Positives
    """Candidates."""
    label_noise: tables.Nonnegative
    """Standard deviation of the labels' noise, an estimate on that scale."""
    coef_norm: tables.Nonnegative
    """Norm of the true coefficients, an estimate on that scale."""
    smallest_eigenvalue: tables.Nonnegative = 0.0
    """Bound on the eigenvalues of the rows' second moments."""
    failure_probability: tables.Share = 0.05
    """Probability that the error bound fails."""


class NaiveTable(tables.Table):
    """The naive model, mu = sigma = 0; it has an optimum at a fixed eta only."""

    eta_range: tables.Range
    """Smallest and largest eta."""
    grid: Annotated[int, Field(ge=1, le=1_000)] = 8
    """Values of eta that are tried, in geometric progression."""


class UnitsTable(tables.Table):
    """Names of the units."""

    label: Annotated[str, Field(min_length=1, max_length=50)] = "units of the label"
    """Unit of the labels."""
    per_label: tables.Positive = 1.0
    """Number of units that a label of 1 represents."""
    money: Annotated[str, Field(max_length=50)] = ""
    """Unit of money."""


# -------------------------------------------------------------------------------------- files


class _LearningFile(tables.ProblemFile):
    """The common part of files with a learner."""

    kind: Literal["market"]
    data: Data
    prior: tables.PriorTable
    sellers: ReportsTable = ReportsTable()
    objective: BuyerTable
    learner: LearnerTable
    run: tables.RunTable = tables.RunTable()

    #: Purposes of public rows, and arguments of the learner from other tables.
    purposes: ClassVar[tuple[str, ...]]
    facts: ClassVar[Any]
    #: From rows, sellers and options to tables and facts; and to the subproblems of a training.
    _measured: ClassVar[Any]
    _trainings: ClassVar[Any]

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        data = self.data
        if isinstance(data, OwnData):
            if set(data.public) != set(self.purposes):
                shares = ", ".join(f"{part} = 0.2" for part in self.purposes)
                raise ValueError(
                    "data.public declares which rows are public, and so not bought; give public = "
                    f"{{ {shares} }}, or files in place of shares"
                )
            if data.report is not None and self.sellers != ReportsTable():
                raise ValueError(
                    f"sellers: the reports are those of the file (data.report, {data.report!r}), "
                    "and none are drawn; leave one of the two out"
                )
        if data.is_classification != ("validation" in self.purposes):
            kind = "a regression" if data.is_classification else "a classifier"
            raise ValueError(
                f"data: the rows do not fit {kind}; give data with other labels, or learner.name"
            )
        if self.sellers.sensitivities is not None:
            self.prior.check_reports(self.sellers.sensitivities)
        try:
            for value in self.learner.candidates:
                learner = self.learner_of(value)
                self.weights(learner, 1)
                learner.promise([np.inf])
        except (errors.ConvexMarketError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"learner: {error}") from None
        return self

    def learner_of(self, regularization: Any, **arguments: Any) -> Any:
        """Return the learner for one regularization."""
        name, options = self.learner.name, self.learner.options
        made = vars(learners).get(name)
        if not (isinstance(made, type) and hasattr(made, "fit") and hasattr(made, "risk")):
            raise errors.ParameterError(
                f"{name!r} is not a learner; give a class of convexmarket.learners, or pass "
                "your learner to convexmarket.Study"
            )
        known = inspect.signature(made).parameters
        facts = {key: value for key, value in self.facts.items() if key in known}
        free = [key for key in known if key not in _OURS | self.facts.keys()]
        tables.refuse_unknown(options, [*type(self.learner).model_fields, *free])
        return made(regularization=regularization, **(facts | options | arguments))

    def weights(self, learner: Any, n_features: int) -> tuple[Sequence[float], Sequence[float]]:
        """Return the candidates for mu and sigma, from the file or from the learner's risk."""
        known = self.learner.model_dump(include={"label_noise", "failure_probability"})
        risk = learner.risk(n_features, **known)
        names = zip(("mu", "sigma"), risk, strict=True)
        mu, sigma = (getattr(self.objective, name, None) or (value,) for name, value in names)
        return mu, sigma

    def market(self, sellers: Sellers, **numbers: Any) -> Market:
        """Return the papers' market."""
        return Market.standard(sellers, cap=self.objective.cap, **numbers)

    def study(self, markets: Any, axes: Any, rows: Any, draws: int, learner: Any = None) -> Study:
        """Return a study of models with a regularization, or of the given learner."""
        return Study(
            markets,
            axes=axes,
            learner=learner or (lambda regularization: self.learner_of(regularization)),
            data=rows,
            noise_draws=self.learner.draws or draws,
            seed=self.run.seed,
        )

    def read(self) -> tuple[Any, dict[str, Sellers]]:
        """Return the rows, and the sellers of each scenario, one for each training row."""
        table, ids = self.sellers, None
        if isinstance(self.data, OwnData):
            people = read_people(self)
            rows, ids = people.rows(), people.ids
            if people.reports is not None:
                return rows, {REPORTED: Sellers(people.reports, self.prior, ids)}
        else:
            rows = self.data.rows()
        m, names = len(rows.X_train), list(rows.feature_names)
        stream = self.run.stream(_SENSITIVITIES)
        given = table.sensitivities or self.prior.sample(m, np.random.default_rng(stream))
        reports = {"independent": np.asarray(given)}
        if len(given) != m:
            raise errors.ProblemFileError(
                f"sellers.sensitivities has {len(given)} entries for {m} training rows; give one "
                "for each, or leave them out to draw them from the prior"
            )
        if "correlated" in table.scenarios:
            feature = table.correlated_with
            column = names.index(str(feature)) if feature in names else feature
            if not (isinstance(column, int) and column < len(names)):
                raise errors.ProblemFileError(
                    f"sellers.correlated_with must be a position below {len(names)} or one of "
                    f"{', '.join(names)}, got {feature!r}"
                )
            reports["correlated"] = correlate(reports["independent"], rows.X_train, column)
        return rows, {name: Sellers(reports[name], self.prior, ids) for name in table.scenarios}

    def _performed(self, load: Any, options: dict[str, Any]) -> Runs:
        """Buy, pay, audit, train and measure."""
        rows, sellers = self.read()
        measured, facts = self._measured(rows, sellers, options | _AUDIT)
        parts = ("train", *self.purposes)
        facts |= {"data": rows.description, "seed": self.run.seed}
        facts["rows"] = {part: len(getattr(rows, f"y_{part}")) for part in parts}
        keys = {name: tuple(each[0]) for name, each in measured.items()}
        return Runs("study", keys, {name: each[1] for name, each in measured.items()}, facts)

    def buy(
        self,
        *,
        gamma: float | None = None,
        budget: float | None = None,
        group: str | None = None,
        at_least: Mapping[str, float] | None = None,
        na_values: Sequence[str] = (),
        show_cells: bool = False,
        **options: Any,
    ) -> tuple[Deal, People]:
        """Buy from the sellers of a user's table, and train the model: :func:`convexmarket.buy`.

        ``gamma`` or ``budget`` replace the file's gamma, ``group`` is the column of the sellers'
        groups, and ``at_least`` the smallest share of the weight of groups.
        """
        data = self.data
        if not isinstance(data, OwnData):
            raise errors.NotSupportedError(
                'buying needs a table of sellers: a file with data.source = "csv" or "parquet" '
                "(convexmarket init writes one)"
            )
        if data.report is None:
            raise errors.ParameterError(
                "data.report is missing, and a purchase needs a column of reports; simulated "
                "reports are for convexmarket run"
            )
        if at_least and group is None:
            raise errors.ParameterError("at_least needs the column of groups: --group-column")
        if gamma is None and budget is None:
            gamma = _single("objective.gamma", self.objective.gamma, ", or --gamma or --budget")
        features = data.public_features
        domain = {"features": features} | ({"classes": data.classes} if data.classes else {})
        value = _single("learner.regularization", self.learner.candidates)
        learner = self.learner_of(value, **domain)
        mus, sigmas = self.weights(learner, features.n_features_out_)
        mu, sigma = _single("objective.mu", mus), _single("objective.sigma", sigmas)
        people = read_people(self, group, na_values, show_cells)
        table, cap = people.parts[SOLD], self.objective.cap
        deal = buy(
            table,
            ask=data.report,
            target=data.label,
            prior=self.prior,
            learner=learner,
            test=people.parts["test"],
            objective=mu * Spread() + sigma * Noise(),
            constraints=[
                *([] if cap is None else [Cap(cap)]),
                *([GroupShare(table[group], at_least)] if at_least else []),
            ],
            gamma=gamma,
            budget=budget,
            group=group,
            **options,
        )
        return deal, people

    def _page(self, runs: Runs) -> Report:
        return market_page.learning_report(self, runs)

    def subproblems(self) -> list[problem_classes.Family]:
        """Return the market, the training of its model, and the fit to predictions."""
        if (value := _middle(self.learner.candidates)) == "auto":
            raise errors.NotSupportedError(
                "learner.regularization is 'auto', and a comparison of solvers needs a number"
            )
        rows, _ = self.read()
        mu, sigma = map(_middle, self.weights(self.learner_of(value), rows.X_train.shape[1]))
        numbers = {"mu": mu, "sigma": sigma, "gamma": _middle(self.objective.gamma)}

        def market_of(size: int, rng: np.random.Generator) -> Market:
            sellers, cap = Sellers(self.prior.sample(size, rng), self.prior), self.objective.cap
            return Market.standard(sellers, **numbers, cap=cap if cap is None else min(cap, size))

        example = market_of(50, np.random.default_rng(0))
        markets = problem_classes.families_of_market(example, market_of)
        return [*markets, *self._trainings(rows, market_of, value)]


def _single(key: str, values: Sequence[Any], instead: str = "") -> Any:
    """Return the single value of a list; a choice would depend on reports or rows."""
    if len(values) == 1:
        return values[0]
    listed = ", ".join(f"{value:g}" for value in values)
    raise errors.ParameterError(
        f"{key} lists {listed}, and a purchase needs one value, fixed before reports and rows are "
        f"read; give --set {key}=[{values[0]!r}]{instead}"
    )


def _middle(values: Sequence[Any]) -> Any:
    return values[len(values) // 2]


def _offers(sellers: Frame, keys: Sequence[str], epsilons: Sequence[Floats]) -> Frame:
    """Return the offers at the points of a curve, with the guarantees of their models."""
    table = sellers.assign(guarantee=np.concatenate(epsilons))
    table["surplus"] = table.payment - table.sensitivity * table.epsilon
    columns = ["id", "sensitivity", "virtual_cost", "weight", "epsilon", "guarantee", "payment"]
    return table[[*keys, *columns, "surplus"]]


def _words(guarantee: Any) -> dict[str, Any]:
    """Return mechanism, accounting and assumptions of a guarantee."""
    words = {"mechanism": guarantee.mechanism, "accounting": guarantee.accounting}
    return words | {"assumptions": list(guarantee.assumptions)}


# --------------------------------------------------------------------------------- classification

_KEY, _DRAWS = ["scenario", "model", "gamma"], 15
#: The columns of a curve.
_CURVE = ["mu", "sigma", "regularization", "eta", "n_bought", "payments", "error_mean", "error_std"]
_CURVE += ["overall_mean", "validation_error", "guarantee_max", "objective", "lower_bound", "gap"]
_CURVE += ["epsilon_max"]


class ClassifierFile(_LearningFile):
    """A market with a classifier: Algorithm 2 of A on a data set.

    Notes
    -----
    Its runs are the candidates; and, for each scenario, model ("mechanism", "naive", and
    "charged tuning", which chooses Lambda in each draw within the privacy sold) and gamma, the
    table ``curve`` holds the chosen one with error_mean and error_std on the test rows and
    overall_mean (error + gamma * payments), ``draws`` the test error of each draw, ``sellers`` the
    offers with the guarantee of the model, and ``audits`` the audits of the mechanism's markets.
    """

    objective: CandidatesTable
    naive: NaiveTable | None = None

    purposes: ClassVar[tuple[str, ...]] = ("validation", "test")

    @model_validator(mode="after")
    def _a_search_keeps_what_was_sold(self) -> Self:
        table = self.learner
        if table.tuning == "charged" and table.options.get("calibration") == "noise":
            raise ValueError(
                "learner.tuning must be 'free' with calibration = 'noise', got 'charged': a search "
                "stays within the privacy sold; use calibration = 'total'"
            )
        return self

    @property
    def facts(self) -> dict[str, Any]:
        """Public facts, and the accuracy of the solver."""
        return {"data_norm": self.data.data_norm, "cap": self.objective.cap, "tol": 1e-9}

    def _measured(
        self, rows: MarketData, sellers: dict[str, Sellers], options: dict[str, Any]
    ) -> _Measured:
        values, gammas = self.learner.candidates, self.objective.gamma
        n_features, is_charged = rows.X_train.shape[1], self.learner.tuning == "charged"
        mus, sigmas = self.weights(self.learner_of(values[0]), n_features)

        def market(scenario: str, gamma: float, mu: float, sigma: float) -> Market:
            return self.market(sellers[scenario], mu=mu, sigma=sigma, gamma=gamma)

        def naive(scenario: str, eta_bought: float) -> Market:
            fixed = eta_bought, eta_bought
            return self.market(sellers[scenario], mu=0, sigma=0, gamma=1.0, eta_range=fixed)

        markets: dict[str, Any] = {MECHANISM: market}
        axes: dict[str, Any] = {"scenario": list(sellers), "gamma": gammas, "mu": mus}
        axes |= {"sigma": sigmas, "regularization": values}
        if self.naive is not None:
            markets[NAIVE] = naive
            axes["eta_bought"] = np.geomspace(*self.naive.eta_range, self.naive.grid).tolist()
        tried = self.study(markets, axes, rows, _DRAWS).run(audits="none", **options)
        runs, keys = tried.tables["runs"], list(tried.keys["runs"])
        chosen = _chosen(runs, gammas)
        places = chosen[[*keys, "model", "price"]]
        curve: Frame = chosen.fillna({"mu": 0.0, "sigma": 0.0}).assign(gamma=chosen.price)
        scale = curve.gamma.where(curve.model == NAIVE, 1.0)  # the naive one is bought at gamma = 1
        curve = curve.assign(
            objective=curve.objective * scale, lower_bound=curve.lower_bound * scale
        )
        sold, fits = (
            places.merge(tried.tables[name], on=keys).assign(gamma=lambda table: table.price)
            for name in ("sellers", "fits")
        )
        best = curve[curve.model == MECHANISM].set_index(["scenario", "gamma"])

        def bought(scenario: str, gamma: float) -> Market:
            return market(scenario, gamma, *best.loc[(scenario, gamma), ["mu", "sigma"]])

        def search(scenario: str, gamma: float) -> Any:
            epsilon = allocate(bought(scenario, gamma)).epsilon
            return self._search(epsilon, (rows.X_validation, rows.y_validation))

        axes = {name: axes[name] for name in ("scenario", "gamma")}
        markets = {MECHANISM: bought}
        again = Study(markets, axes=axes)
        if is_charged:
            again = self.study(markets, axes, rows, _DRAWS, search)
        audited = again.run(payments="exact" if is_charged else "none", **options).tables
        if is_charged:  # the mechanism's purchase, with a model that chooses Lambda
            charged = {name: table.assign(model=CHARGED) for name, table in audited.items()}
            weights = best[["mu", "sigma"]].reset_index()
            more = charged["runs"].merge(weights, on=["scenario", "gamma"])
            curve, sold, fits = (
                pd.concat(pair, ignore_index=True)
                for pair in ((curve, more), (sold, charged["sellers"]), (fits, charged["fits"]))
            )
        bought_at, epsilons = [part.epsilon for _, part in sold.groupby(_KEY, sort=False)], []
        for row, epsilon in zip(curve.itertuples(), bought_at, strict=True):
            if row.model != CHARGED:  # a search uses all of the privacy bought
                guarantee = self.learner_of(row.regularization).promise(epsilon, n_features)
            epsilons.append(epsilon if row.model == CHARGED else guarantee.epsilon)
        curve = curve.rename(columns={"test_error": "error_mean", "test_error_std": "error_std"})
        curve["overall_mean"] = curve.error_mean + curve.gamma * curve.payments
        draws = fits.rename(columns={"noise_draw": "draw"})
        common = np.unique(rows.y_test, return_counts=True)[1].max() / len(rows.y_test)
        facts = self._baseline(rows) | {"one_class_error": float(1 - common)}
        return {
            "runs": (keys, runs),
            "curve": (_KEY, curve[[*_KEY, *_CURVE]]),
            "draws": ([*_KEY, "draw"], draws[[*_KEY, "draw", "test_error"]]),
            "sellers": ([*_KEY, "id"], _offers(sold, _KEY, epsilons)),
            "audits": (_KEY, audited["audits"].rename(columns={"market": "model"})),
        }, facts | {"guarantee": _words(guarantee), "caveats": CAVEATS}

    def _search(self, sold: Floats, validation: tuple[Floats, Floats]) -> learners.PrivateSearch:
        """Build the search for Lambda, with candidates that retain half of the privacy sold."""
        candidates = []
        for value in self.learner.candidates:
            try:
                self.learner_of(value).promise(sold / 2 * (1 - 1e-9), validation[0].shape[1])
            except errors.ParameterError:
                continue
            candidates.append(value)
        if not (candidates and sold.any()):
            raise errors.ParameterError("no regularization retains half of the privacy sold")
        learner, grid = self.learner_of(candidates[0]), {"regularization": candidates}
        trials = float(len(candidates))
        return learners.PrivateSearch(learner, grid, validation=validation, trials=trials)

    def _baseline(self, rows: MarketData) -> dict[str, Any]:
        """Return the test error without privacy, with the Lambda of the best validation error."""
        found = []
        for value in sorted(self.learner.candidates, reverse=True):  # the largest of ties
            model = self.learner_of(value).fit(rows.X_train, rows.y_train, epsilon=np.inf)
            validation = model.score(rows.X_validation, rows.y_validation)
            found.append((validation, value, np.mean(model.predict(rows.X_test) != rows.y_test)))
        _, value, error = max(found, key=lambda each: each[0])
        return {"baseline_error": float(error), "baseline_regularization": value}

    def _trainings(self, rows: MarketData, market_of: Any, value: float) -> Any:
        return problem_classes.classifier_families(rows, market_of, value)


def _chosen(runs: Frame, gammas: Sequence[float]) -> Frame:
    """Select the run with the smallest overall error for each scenario, model and price gamma.

    Ties go to the largest Lambda, whose share of a guarantee is the smallest, and then to the
    first.
    """
    runs = runs.assign(model=runs.market, price=runs.gamma)
    points, every = ["scenario", "model", "price"], pd.DataFrame({"price": gammas})
    fixed = runs[runs.model == NAIVE].drop(columns="price").merge(every, how="cross")
    tried = pd.concat([runs[runs.model == MECHANISM], fixed], ignore_index=True)
    tried["overall"] = tried.get("validation_error", np.nan) + tried.price * tried.payments
    order = tried.sort_values(["overall", "regularization"], ascending=[True, False], kind="stable")
    best = tried[points].drop_duplicates().merge(order.drop_duplicates(points))
    for row in best[best.overall.isna()].itertuples():
        raise errors.ParameterError(
            f"no candidate of the {row.model} model at gamma = {row.price:g} ({row.scenario}) "
            "fits its purchase; give larger values of learner.regularization, or of "
            "objective.sigma (of naive.eta_range for the naive model). The last error: "
            f"{getattr(row, 'learner_message', '') or row.message}"
        )
    return best


# ------------------------------------------------------------------------------------- regression

_RIDGE_KEY = ["scenario", "gamma", "regularization"]


class RidgeFile(_LearningFile):
    """A market with ridge regression: mu and sigma follow from Theorem 3.6 of R.

    Notes
    -----
    The table ``curve`` holds for each scenario, gamma and regularization: marked (the best bound at
    gamma in a market at the prior's quantiles), the purchase, loss_mean and loss_std of the test
    error (exact over the noise), rmse, rmse_low and rmse_high (10 % and 90 % of simulated
    releases), uniform_rmse (one price for all), and the terms of the bound. ``choices`` holds the
    bounds from public facts, ``baselines`` the rmse without noise.
    """

    learner: RidgeTable
    units: UnitsTable = UnitsTable()

    purposes: ClassVar[tuple[str, ...]] = ("test",)

    @property
    def facts(self) -> dict[str, Any]:
        """The learner of Theorem 3.6."""
        return {"perturbation": "output", "fit_intercept": False}

    def _plain(self, regularization: float, **arguments: Any) -> learners.PersonalizedRidge:
        """Return the learner of Theorem 3.6, with noise in floating point."""
        return self.learner_of(regularization, rounding=None, **arguments)

    def _market(self, sellers: Sellers, gamma: float, value: float, n_features: int) -> Market:
        (mu,), (sigma,) = self.weights(self._plain(value), n_features)
        return self.market(sellers, mu=mu, sigma=sigma, gamma=gamma)

    def _bound(
        self, weights: Floats, eta: float, regularization: float, n_features: int
    ) -> ridge_math.RidgeErrorBound:
        """Return the terms of Theorem 3.6 for a purchase."""
        learner = self._plain(regularization)
        kappa = ridge_sensitivity(regularization, n_features, learner.max_norm, learner.sensitivity)
        names = {"label_noise", "coef_norm", "smallest_eigenvalue", "failure_probability"}
        known = {"n_features": n_features, **self.learner.model_dump(include=names)}
        return ridge_math.ridge_error_bound(weights, eta / kappa, regularization, **known)

    def _measured(
        self, rows: RegressionData, sellers: dict[str, Sellers], options: dict[str, Any]
    ) -> _Measured:
        values, (m, n_features) = self.learner.candidates, rows.X_train.shape
        choices = self._choices(m, n_features)

        def market(scenario: str, gamma: float, regularization: float) -> Market:
            return self._market(sellers[scenario], gamma, regularization, n_features)

        axes = dict(zip(_RIDGE_KEY, (list(sellers), self.objective.gamma, values), strict=True))

        def plain(regularization: float) -> Any:
            return self._plain(regularization)

        runs = self.study({MECHANISM: market}, axes, rows, 200, plain).run(**options)
        table, sold, fits = (runs.tables[name] for name in ("runs", "sellers", "fits"))
        failed = table[table.get("test_error", pd.Series(np.nan, table.index)).isna()]
        for row in failed.itertuples():
            raise errors.ParameterError(
                f"the market at gamma = {row.gamma:g} and regularization = {row.regularization:g} "
                f"has no model: {getattr(row, 'learner_message', '') or row.message}"
            )
        curve: Frame = table.merge(choices[["gamma", "regularization", "mu", "sigma", "marked"]])
        groups = (table.groupby(_RIDGE_KEY, sort=False) for table in (sold, fits))
        measured, guarantees = [], []
        for row, (_, bought), (_, releases) in zip(curve.itertuples(), *groups, strict=True):
            measured.append(self._errors(row, bought, releases.test_error, rows))
            guarantees.append(self._plain(row.regularization).promise(bought.epsilon))
        curve = curve.join(pd.DataFrame(measured, index=curve.index))
        columns = ["marked", "mu", "sigma", "eta", "n_bought", "payments", *measured[0]]
        columns += ["objective", "lower_bound", "gap", "epsilon_max"]
        offers = _offers(sold, _RIDGE_KEY, [guarantee.epsilon for guarantee in guarantees])
        constant = float(rows.y_test.mean())  # the best constant for the public rows
        return {
            "runs": (runs.keys["runs"], table),
            "curve": (_RIDGE_KEY, curve[[*_RIDGE_KEY, *columns]]),
            "sellers": ([*_RIDGE_KEY, "id"], offers.merge(curve[[*_RIDGE_KEY, "marked"]])),
            "audits": (_RIDGE_KEY, runs.tables["audits"].drop(columns="market")),
            "choices": (_RIDGE_KEY[1:], choices),
            "baselines": (_RIDGE_KEY[2:], pd.DataFrame([self._baseline(v, rows) for v in values])),
        }, {
            "constant": constant,
            "constant_rmse": float(np.sqrt(np.mean((rows.y_test - constant) ** 2))),
            "caveats": CAVEATS_OF_RIDGE,
            "guarantee": _words(guarantees[0]),
        }

    def _baseline(self, value: float, rows: RegressionData) -> dict[str, float]:
        model = self.learner_of(value, weighting="equal", epsilon=np.inf)
        wrong = model.fit(rows.X_train, rows.y_train).predict(rows.X_test) - rows.y_test
        return {"regularization": value, "rmse": float(np.sqrt(np.mean(wrong**2)))}

    def _choices(self, m: int, n_features: int) -> Frame:
        """Return the bound at each gamma and lambda in a market at the prior's quantiles.

        It depends only on public facts, and so does the mark of the best lambda at each gamma.
        """
        quantiles = Sellers(self.prior.quantile((np.arange(m) + 0.5) / m), self.prior)
        rows = []
        for gamma in self.objective.gamma:
            for value in self.learner.candidates:
                market = self._market(quantiles, gamma, value, n_features)
                point, form = allocate(market), market.form
                bias = self._bound(point.weights, point.eta, value, n_features).bias
                row = {"gamma": gamma, "regularization": value, "mu": form.mu, "sigma": form.sigma}
                rows.append(row | {"bias": bias, "expected_objective": bias + point.objective})
        table = pd.DataFrame(rows)
        best = table.groupby("gamma").expected_objective.idxmin()
        return table.assign(marked=table.index.isin(best))

    def _errors(self, run: Any, sold: Frame, losses: Any, rows: RegressionData) -> dict[str, Any]:
        """Compute test errors of a purchase and of a uniform price, and the bound on the error."""
        arrays = rows.X_train, rows.y_train, rows.X_test, rows.y_test
        weights, value = sold.weight.to_numpy(), run.regularization
        ridge = self._plain(value, weighting=weights)
        exact = learners.expected_loss(ridge, *arrays, epsilon=sold.epsilon.to_numpy())
        low, high = np.sqrt(losses.quantile([0.1, 0.9]))
        uniform = run.payments / (len(sold) * self.prior.support[1])  # 0 for an unbounded support
        uniform_rmse = np.nan
        if uniform > 0:
            alike = learners.expected_loss(self._plain(value), *arrays, epsilon=uniform)
            uniform_rmse = float(np.sqrt(alike.mean))
        bound = self._bound(weights, run.eta, value, rows.X_train.shape[1])
        return {
            "epsilon_mean": run.eta / len(sold),
            "loss_mean": exact.mean,
            "loss_std": exact.std,
            "rmse": float(np.sqrt(exact.mean)),
            "rmse_low": low,
            "rmse_high": high,
            "simulated_loss": losses.mean(),
            "simulated_error": losses.sem(),
            "uniform_epsilon": uniform or np.nan,
            "uniform_rmse": uniform_rmse,
            **bound._asdict(),
            "bound": bound.total,
        }

    def _trainings(self, rows: RegressionData, market_of: Any, value: float) -> Any:
        def ridge(size: int, rng: np.random.Generator) -> Any:
            weights = allocate(market_of(size, rng)).weights
            arguments = rows.X_train, rows.y_train, weights, value, self.learner.label_noise
            return draw_ridge(*arguments, rng)

        return [problem_classes.Family("ridge", ridge)]
