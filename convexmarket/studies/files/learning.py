"""Files of kind "market" with a learner: error against payments over gamma.

A classifier follows Algorithm 2 of A (its Fig. 2): for every gamma the buyer considers a few mu,
sigma and Lambda, and takes the purchase whose error on validation rows, plus gamma times the
payments, is smallest. The naive model of the papers, mu = sigma = 0, chooses its eta in the same
way. For ridge regression mu and sigma are the constants of Theorem 3.6 of R for a lambda that is
fixed in advance. All models are trained on paired noise draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from inspect import signature
from os import PathLike
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

import convexmarket.learners as shipped
from convexmarket.allocation import allocate
from convexmarket.data.datasets import MarketData, RegressionData, correlate
from convexmarket.deal import Deal, buy
from convexmarket.errors import (
    ConvexMarketError,
    NotSupportedError,
    ParameterError,
    ProblemFileError,
)
from convexmarket.learners import PersonalizedRidge, PrivateSearch, expected_loss
from convexmarket.learners.ridge_math import RidgeErrorBound, ridge_error_bound
from convexmarket.market import Market
from convexmarket.privacy import ridge_sensitivity
from convexmarket.report import Report
from convexmarket.sellers import Sellers
from convexmarket.studies.files import market_page
from convexmarket.studies.files.data import Data, OwnData
from convexmarket.studies.files.file_tables import (
    LONGEST_TEXT,
    MOST_ENTRIES,
    Column,
    Positive,
    Positives,
    PriorTable,
    ProblemFile,
    Range,
    Reports,
    RunTable,
    Table,
    listed_once,
    refuse_unknown,
)
from convexmarket.studies.files.market_file import VariantsFile
from convexmarket.studies.files.market_page import CHARGED, MECHANISM, NAIVE
from convexmarket.studies.files.people import SOLD, People, read_people
from convexmarket.studies.progress import Progress
from convexmarket.studies.runs import Runs
from convexmarket.studies.study import Study
from convexmarket.studies.subproblems.models import draw_ridge
from convexmarket.studies.subproblems.problem_classes import (
    Family,
    allocation_families,
    classifier_families,
    papers_market,
)
from convexmarket.terms import Cap, Constraint, GroupShare, Noise, Spread

__all__ = ["ClassifierFile", "RidgeFile", "model_of_market"]

Floats = NDArray[np.float64]
Rows = MarketData | RegressionData
#: A DataFrame: its columns have known types.
Frame = Any

#: The scenario of the reports in a user's table.
REPORTED = "reported"
#: The branch of the seed for sensitivities.
_SENSITIVITIES = 0
#: Numbers of sellers in an audit, and of misreports of each.
_AUDITED, _MISREPORTS = 200, 17

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


def _feature(value: Any) -> str | int:
    if (isinstance(value, str) and len(value) <= 200) or (type(value) is int and value >= 0):
        return value
    raise ValueError(f"{value!r} is not a feature; give its name, or its position from 0")


_Feature = Annotated[
    str | int,
    PlainValidator(_feature),
    WithJsonSchema({"type": ["string", "integer"], "maxLength": 200, "maximum": MOST_ENTRIES}),
]
_Scenarios = Annotated[
    tuple[Literal["independent", "correlated"], ...],
    Field(strict=False, min_length=1, max_length=2),
    AfterValidator(listed_once),
]


class ReportsTable(Table):
    """The reports of the sellers, and their relation to the rows.

    Attributes
    ----------
    sensitivities : list of float
        One per training row; drawn from the prior by default.
    scenarios : list of str
        "independent", and "correlated": the k-th smallest sensitivity belongs to the row with the
        k-th smallest value of a feature (B, section 5).
    correlated_with : str or int
        That feature, by name or position.
    """

    sensitivities: Reports | None = None
    scenarios: _Scenarios = ("independent",)
    correlated_with: _Feature = 0


class BuyerTable(Table):
    """The buyer's objective and constraints.

    Attributes
    ----------
    gamma : list of float
        Weights of the payments: the price of money in units of the objective.
    mu, sigma : list of float
        Candidates for the weights of the spread and of the noise, of a classifier; by default the
        constants of the learner's error bound.
    cap : float
        Largest weight, in multiples of the average.
    """

    gamma: Positives
    mu: Positives | None = None
    sigma: Positives | None = None
    cap: Annotated[float, Field(ge=1)] | None = None


#: The schema of arguments of a constructor.
_ARGUMENT: Any = {
    "type": ["number", "boolean", "string", "array"],
    "maxLength": LONGEST_TEXT,
    "maxItems": 2,
}


class LearnerTable(Table):
    """A private learner. Other keys are arguments of its constructor.

    "PersonalizedRidge" maps labels from ``target_range`` to [-1, 1]. ``label_noise``,
    ``coef_norm``, ``smallest_eigenvalue`` and ``failure_probability`` are arguments of
    :func:`convexmarket.learners.ridge_error_bound`, on that scale.

    Attributes
    ----------
    name : str
        A class of convexmarket.learners; :class:`convexmarket.Study` takes others.
    regularization : list of float, or str
        Candidates, or "auto": the public rule of a classifier.
    draws : int
        Noise draws of each model; by default 15 for a classifier and 200 for a regression.
    tuning : str
        "charged" also chooses Lambda privately, within the privacy sold.
    """

    model_config = ConfigDict(extra="allow", json_schema_extra={"additionalProperties": _ARGUMENT})

    name: Column = "PrivateLogisticRegression"
    regularization: Positives | Literal["auto"]
    draws: Annotated[int, Field(ge=1, le=10_000)] | None = None
    tuning: Literal["free", "charged"] = "free"

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of the constructor, and of the learner's risk."""
        given = (self.model_extra or {}).items()
        return {key: tuple(value) if isinstance(value, list) else value for key, value in given}

    @property
    def candidates(self) -> tuple[Any, ...]:
        """The values of the regularization."""
        return ("auto",) if self.regularization == "auto" else self.regularization


class NaiveTable(Table):
    """The naive model, mu = sigma = 0; it has an optimum at a fixed eta only.

    Attributes
    ----------
    eta_range : list of two floats
        Smallest and largest eta.
    grid : int
        Values of eta that are tried, in geometric progression.
    """

    eta_range: Range
    grid: Annotated[int, Field(ge=1, le=1_000)] = 8


class UnitsTable(Table):
    """Names of the units.

    Attributes
    ----------
    label : str
        Unit of the labels.
    per_label : float
        Units per label of 1.
    money : str
        Unit of money.
    """

    label: Annotated[str, Field(min_length=1, max_length=50)] = "units of the label"
    per_label: Positive = 1.0
    money: Annotated[str, Field(max_length=50)] = ""


# -------------------------------------------------------------------------------------- files

#: Public facts for the error bound of ridge regression, which are not constructor arguments.
_BOUND = ("label_noise", "coef_norm", "smallest_eigenvalue", "failure_probability")
#: Arguments of constructors without a key in the file.
_OURS = ("regularization", "epsilon", "random_state", "features", "classes")
#: Keys of tables, tables and facts.
_Measured = tuple[dict[str, tuple[str, ...]], dict[str, Frame], dict[str, Any]]


class _LearningFile(ProblemFile):
    """The common part of files with a learner.

    Attributes
    ----------
    data : table
        The rows.
    prior : table
        Distribution of the sensitivities, common knowledge.
    sellers : table
        The reports of the sellers.
    objective : table
        The buyer's objective and constraints.
    learner : table
        The private model that is trained.
    run : table
        How the problem is run.
    """

    kind: Literal["market"]
    data: Data
    prior: PriorTable
    sellers: ReportsTable = ReportsTable()
    objective: BuyerTable
    learner: LearnerTable
    run: RunTable = RunTable()

    #: The purposes of public rows, of which the first is "validation" for a classification.
    _purposes: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        given, data = self.sellers.sensitivities, self.data
        if isinstance(data, OwnData):
            if set(data.public) != set(self._purposes):
                shares = ", ".join(f"{part} = 0.2" for part in self._purposes)
                raise ValueError(
                    "data.public declares which rows are public, and so not bought; give public = "
                    f"{{ {shares} }}, or files in place of shares"
                )
            if data.report is not None and self.sellers != ReportsTable():
                raise ValueError(
                    f"sellers: the reports are those of the file (data.report, {data.report!r}), "
                    "and none are drawn; leave one of the two out"
                )
        if data.is_classification != ("validation" in self._purposes):
            kind = "a regression" if data.is_classification else "a classifier"
            raise ValueError(
                f"data: the rows do not fit {kind}; give data with other labels, or learner.name"
            )
        if given is not None:
            self.prior.check_reports(given)
        return self

    @model_validator(mode="after")
    def _learner_takes_its_arguments(self) -> Self:
        try:
            for value in self.learner.candidates:
                self._try(value)
        except (ConvexMarketError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"learner: {error}") from None
        return self

    def _try(self, regularization: Any) -> None:
        """Validate the arguments of the learner by its own checks."""
        self.weights(self.learner_of(regularization), 1)
        self.learner_of(regularization).promise([np.inf])

    @property
    def facts(self) -> dict[str, Any]:
        """Arguments of the learner from other tables, if its class accepts them."""
        raise NotImplementedError

    def learner_of(self, regularization: Any, **arguments: Any) -> Any:
        """Return the learner for one regularization."""
        name, options = self.learner.name, self.learner.options
        made = vars(shipped).get(name)
        if not (isinstance(made, type) and hasattr(made, "fit") and hasattr(made, "risk")):
            raise ParameterError(
                f"{name!r} is not a learner; give a class of convexmarket.learners, or pass "
                "your learner to convexmarket.Study"
            )
        known = signature(made).parameters
        facts = {key: value for key, value in self.facts.items() if key in known}
        given = {key: value for key, value in options.items() if key not in _BOUND}
        open_keys = [key for key in known if key not in {*self.facts, *_OURS}]
        refuse_unknown(given, [*LearnerTable.model_fields, *open_keys, *_BOUND])
        return made(regularization=regularization, **(facts | given | arguments))

    def weights(self, learner: Any, n_features: int) -> tuple[Sequence[float], Sequence[float]]:
        """Return the candidates for mu and sigma: those of the file, or the learner's risk."""
        mu, sigma = self.objective.mu, self.objective.sigma
        if mu is None or sigma is None:
            risk = learner.risk(n_features, **self._assumed)
            mu, sigma = mu or (risk[0],), sigma or (risk[1],)
        return mu, sigma

    @property
    def _assumed(self) -> dict[str, Any]:
        """Arguments of the learner's risk."""
        return {}

    def market(self, sellers: Sellers, **numbers: Any) -> Market:
        """Return the papers' market."""
        return Market.standard(sellers, cap=self.objective.cap, **numbers)

    def read(self) -> tuple[Rows, People | None]:
        """Return the rows, and the sellers of a user's table."""
        if isinstance(self.data, OwnData):
            people = read_people(self)
            return people.rows(), people
        return self.data.rows(), None

    def sellers_of(self, rows: Rows, people: People | None = None) -> dict[str, Sellers]:
        """Return the sellers of each scenario, one for each training row."""
        ids = None if people is None else people.ids
        if people is not None and people.reports is not None:
            return {REPORTED: Sellers(people.reports, self.prior, ids)}
        table, m = self.sellers, len(rows.X_train)
        if table.sensitivities is None:
            stream = self.run.stream(_SENSITIVITIES)
            drawn = self.prior.sample(m, np.random.default_rng(stream))
        else:
            drawn = np.array(table.sensitivities)
        if drawn.size != m:
            raise ProblemFileError(
                f"sellers.sensitivities has {drawn.size} entries for {m} training rows; give one "
                "for each, or leave them out to draw them from the prior"
            )
        reports = {"independent": drawn}
        if "correlated" in table.scenarios:
            names, feature = list(rows.feature_names), table.correlated_with
            column = names.index(str(feature)) if feature in names else feature
            if not (isinstance(column, int) and column < len(names)):
                raise ProblemFileError(
                    f"sellers.correlated_with must be a position below {len(names)} or one of "
                    f"{', '.join(names)}, got {feature!r}"
                )
            reports["correlated"] = correlate(drawn, rows.X_train, column)
        return {name: Sellers(reports[name], self.prior, ids) for name in table.scenarios}

    def perform(
        self,
        load: Any = None,
        *,
        journal: str | PathLike[str] | None = None,
        progress: bool | Progress = True,
    ) -> Runs:
        """Buy, pay, audit, train and measure; see :meth:`ProblemFile.perform`."""
        rows, people = self.read()
        options = {"jobs": self.run.workers, "journal": journal, "progress": progress}
        options |= {"audit_sellers": _AUDITED, "misreports": _MISREPORTS}
        keys, tables, facts = self._measured(rows, self.sellers_of(rows, people), options)
        parts = [part for part in ("train", "validation", "test") if hasattr(rows, f"y_{part}")]
        facts |= {
            "data": rows.description,
            "rows": {part: len(getattr(rows, f"y_{part}")) for part in parts},
            "seed": self.run.seed,
        }
        return Runs("study", keys, tables, facts)

    def _measured(self, rows: Any, sellers: dict[str, Sellers], options: Any) -> _Measured:
        raise NotImplementedError

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

        Parameters
        ----------
        gamma, budget : float, optional
            Weight of the payments, in place of the file's, or their expected sum.
        group : str, optional
            The column of the sellers' groups.
        at_least : mapping of str to float, optional
            Smallest share of the weight of groups.
        na_values, show_cells
            As for :func:`convexmarket.price`.
        **options
            ``random_state`` and ``progress`` of :func:`convexmarket.buy`.

        Returns
        -------
        deal : Deal
        people : People
            The sellers and the public rows.
        """
        data = self.data
        if not isinstance(data, OwnData):
            raise NotSupportedError(
                'buying needs a table of sellers: a file with data.source = "csv" or "parquet" '
                "(convexmarket init writes one)"
            )
        if data.report is None:
            raise ParameterError(
                "data.report is missing, and a purchase needs a column of reports; simulated "
                "reports are for convexmarket run"
            )
        if at_least and group is None:
            raise ParameterError("at_least needs the column of groups: --group-column")
        if gamma is None and budget is None:
            gamma = _single("objective.gamma", self.objective.gamma, ", or --gamma or --budget")
        value = _single("learner.regularization", self.learner.candidates)
        features = data.public_features
        classes: dict[str, Any] = {} if data.classes is None else {"classes": data.classes}
        learner = self.learner_of(value, features=features, **classes)
        mus, sigmas = self.weights(learner, features.n_features_out_)
        mu, sigma = _single("objective.mu", mus), _single("objective.sigma", sigmas)
        people = read_people(self, group, na_values, show_cells)
        table = people.parts[SOLD].assign(**{data.report: people.reports})
        constraints: list[Constraint] = []
        if self.objective.cap is not None:
            constraints.append(Cap(self.objective.cap))
        if group is not None:
            table[group] = people.groups
            constraints += [GroupShare(people.groups, at_least)] if at_least else []
        deal = buy(
            table,
            ask=data.report,
            target=data.label,
            prior=self.prior,
            learner=learner,
            test=people.parts["test"],
            objective=mu * Spread() + sigma * Noise(),
            constraints=constraints,
            gamma=gamma,
            budget=budget,
            group=group,
            **options,
        )
        return deal, people

    def report(self, runs: Runs) -> Report:
        """Return the report of runs."""
        return market_page.learning_report(self, runs)

    def subproblems(self) -> list[Family]:
        """Return the market, the training of its model, and the fit to predictions."""
        if (value := _middle(self.learner.candidates)) == "auto":
            raise NotSupportedError(
                "learner.regularization is 'auto', and a comparison of solvers needs a number"
            )
        rows = self.read()[0]
        mu, sigma = map(_middle, self.weights(self.learner_of(value), rows.X_train.shape[1]))
        gamma, cap = _middle(self.objective.gamma), self.objective.cap
        market_of = partial(papers_market, self.prior, mu, sigma, gamma, cap)
        return [*allocation_families(market_of), *self._trainings(rows, market_of, value)]

    def _trainings(self, rows: Any, market_of: Any, value: float) -> list[Family]:
        raise NotImplementedError


def _single(key: str, values: Sequence[Any], instead: str = "") -> Any:
    """Return the single value of a list; a choice would depend on reports or rows."""
    if len(values) == 1:
        return values[0]
    listed = ", ".join(f"{value:g}" for value in values)
    raise ParameterError(
        f"{key} lists {listed}, and a purchase needs one value, fixed before reports and rows are "
        f"read; give --set {key}=[{values[0]!r}]{instead}"
    )


def _middle(values: Sequence[Any]) -> Any:
    return values[len(values) // 2]


def _numbered(runs: Runs, first: int = 0) -> dict[str, Frame]:
    """Return the tables with the number of the run in the column ``run``."""
    keys = list(runs.keys["runs"])
    table = runs.tables["runs"]
    numbers = table[keys].assign(run=np.arange(len(table)) + first)
    return {name: each.merge(numbers, on=keys, how="left") for name, each in runs.tables.items()}


def _of_curve(curve: Frame, table: Frame, keys: Sequence[str]) -> Frame:
    """Select the rows of a table for the runs of a curve."""
    return curve[[*keys, "run"]].merge(table.drop(columns=list(keys), errors="ignore"), on="run")


def _offers(curve: Frame, sellers: Frame, keys: Sequence[str], epsilons: list[Floats]) -> Frame:
    """Return the offers at the points of a curve, and the guarantees of the rows."""
    table = _of_curve(curve, sellers, keys).assign(guarantee=np.concatenate(epsilons))
    table["surplus"] = table.payment - table.sensitivity * table.epsilon
    columns = ["id", "sensitivity", "virtual_cost", "weight", "epsilon", "guarantee", "payment"]
    return table[[*keys, *columns, "surplus"]]


def _words(guarantee: Any) -> dict[str, Any]:
    """Return mechanism, accounting and assumptions of a guarantee."""
    words = {"mechanism": guarantee.mechanism, "accounting": guarantee.accounting}
    return words | {"assumptions": list(guarantee.assumptions)}


# --------------------------------------------------------------------------------- classification

_KEY = ("scenario", "model", "gamma")


class ClassifierFile(_LearningFile):
    """A market with a classifier: Algorithm 2 of A on a data set.

    Attributes
    ----------
    naive : table
        The papers' baseline; by default the study has no baseline.

    Notes
    -----
    Its runs are those of the candidates; and, for each scenario, model ("mechanism", "naive", and
    "charged tuning", which chooses Lambda in each draw within the privacy sold) and gamma, the
    table ``curve`` holds the chosen one with error_mean and error_std on the test rows and
    overall_mean (error + gamma * payments), ``draws`` the test error of each draw, ``sellers`` the
    offers with the guarantee of the model, and ``audits`` those of the mechanism's markets.
    """

    naive: NaiveTable | None = None

    _purposes: ClassVar[tuple[str, ...]] = ("validation", "test")

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
        buyer, values, n_features = self.objective, self.learner.candidates, rows.X_train.shape[1]
        mu, sigma = self.weights(self.learner_of(values[0]), n_features)
        training: dict[str, Any] = {"data": rows, "noise_draws": self.learner.draws or 15}
        training["seed"] = self.run.seed

        def mechanism(scenario: str, gamma: float, mu: float, sigma: float) -> Market:
            return self.market(sellers[scenario], mu=mu, sigma=sigma, gamma=gamma)

        def naive(scenario: str, eta_bought: float) -> Market:
            eta = (eta_bought, eta_bought)
            return self.market(sellers[scenario], mu=0.0, sigma=0.0, gamma=1.0, eta_range=eta)

        markets: dict[str, Any] = {MECHANISM: mechanism}
        axes: dict[str, Any] = {"scenario": list(sellers), "gamma": buyer.gamma}
        tried = axes | {"mu": mu, "sigma": sigma, "regularization": values}
        if self.naive is not None:
            markets[NAIVE] = naive
            tried["eta_bought"] = np.geomspace(*self.naive.eta_range, self.naive.grid).tolist()
        study = Study(
            markets,
            axes=tried,
            learner=lambda regularization: self.learner_of(regularization),
            **training,
        )
        runs = study.run(audits="none", **options)
        tables = _numbered(runs)
        curve = _chosen(tables["runs"], buyer.gamma)
        best = curve[curve.model == MECHANISM].set_index(["scenario", "gamma"])

        def chosen(scenario: str, gamma: float) -> Market:
            row = best.loc[(scenario, gamma)]
            return mechanism(scenario, gamma, row.mu, row.sigma)

        def search(scenario: str, gamma: float) -> PrivateSearch:
            sold = allocate(chosen(scenario, gamma)).epsilon
            return self._search(sold, (rows.X_validation, rows.y_validation))

        charged = {"learner": search, **training} if self.learner.tuning == "charged" else {}
        second = Study({CHARGED: chosen}, axes=axes, **charged).run(**options)
        if charged:
            more = _numbered(second, len(tables["runs"]))
            tuned = more["runs"].dropna(subset=["test_error"]).rename(columns={"market": "model"})
            tuned = tuned.merge(best.reset_index()[["scenario", "gamma", "mu", "sigma"]])
            curve = pd.concat([curve, tuned.assign(regularization=np.nan)], ignore_index=True)
            for name in ("sellers", "fits"):
                tables[name] = pd.concat([tables[name], more[name]], ignore_index=True)
        sold = tables["sellers"].groupby("run").epsilon
        epsilons = []
        for row in curve.itertuples():
            epsilon = sold.get_group(row.run).to_numpy()
            if row.model != CHARGED:  # a search uses all of the privacy bought
                guarantee = self.learner_of(row.regularization).promise(epsilon, n_features)
                epsilon = guarantee.epsilon
            epsilons.append(epsilon)
        draws = _of_curve(curve, tables["fits"], _KEY).rename(columns={"noise_draw": "draw"})
        common = np.unique(rows.y_test, return_counts=True)[1].max() / len(rows.y_test)
        keys = {"runs": runs.keys["runs"], "curve": _KEY, "audits": _KEY}
        keys |= {"draws": (*_KEY, "draw"), "sellers": (*_KEY, "id")}
        measured = {
            "runs": runs.tables["runs"],
            "curve": _curve(curve),
            "draws": draws[[*_KEY, "draw", "test_error"]],
            "sellers": _offers(curve, tables["sellers"], _KEY, epsilons),
            "audits": second.tables["audits"].rename(columns={"market": "model"}),
        }
        measured["audits"]["model"] = MECHANISM
        facts = self._baseline(rows) | {"one_class_error": float(1 - common)}
        facts |= {"guarantee": _words(guarantee), "caveats": CAVEATS}
        return keys, measured, facts

    def _search(self, sold: Floats, validation: tuple[Floats, Floats]) -> PrivateSearch:
        """Build the search for Lambda, with candidates that retain half of the privacy sold."""
        candidates = []
        for value in self.learner.candidates:
            try:
                self.learner_of(value).promise(sold / 2 * (1 - 1e-9), validation[0].shape[1])
            except ParameterError:
                continue
            candidates.append(value)
        if not (candidates and sold.any()):
            raise ParameterError("no regularization retains half of the privacy sold")
        learner, grid = self.learner_of(candidates[0]), {"regularization": candidates}
        return PrivateSearch(learner, grid, validation=validation, trials=float(len(candidates)))

    def _baseline(self, rows: MarketData) -> dict[str, Any]:
        """Return the test error without privacy, with the Lambda of the best validation error."""
        errors = []
        for value in sorted(self.learner.candidates, reverse=True):  # the largest of ties
            model = self.learner_of(value).fit(rows.X_train, rows.y_train, epsilon=np.inf)
            validation = np.mean(model.predict(rows.X_validation) != rows.y_validation)
            errors.append((validation, value, np.mean(model.predict(rows.X_test) != rows.y_test)))
        _, value, error = min(errors, key=lambda each: each[0])
        return {"baseline_error": float(error), "baseline_regularization": value}

    def _trainings(self, rows: MarketData, market_of: Any, value: float) -> list[Family]:
        return classifier_families(rows, market_of, value)


def _chosen(runs: Frame, gammas: Sequence[float]) -> Frame:
    """Select the run with the smallest overall error for each scenario, model and gamma.

    Ties go to the largest Lambda, whose share of a guarantee is the smallest, and then to the
    first.
    """
    runs = runs.rename(columns={"market": "model"})
    fixed = runs[runs.model == NAIVE].drop(columns="gamma")
    fixed = fixed.merge(pd.DataFrame({"gamma": list(gammas)}), how="cross")
    bounds = {name: fixed.gamma * fixed[name] for name in ("objective", "lower_bound")}
    fixed = fixed.assign(mu=0.0, sigma=0.0, **bounds)
    tried = pd.concat([runs[runs.model == MECHANISM], fixed], ignore_index=True)
    errors = tried.get("validation_error", pd.Series(np.nan, index=tried.index))
    tried["overall"] = errors + tried.gamma * tried.payments
    order = tried.sort_values(["overall", "regularization"], ascending=[True, False], kind="stable")
    best = order.drop_duplicates(list(_KEY))
    scenario, model = (
        pd.Categorical(best[name], tried[name].unique()).codes for name in ("scenario", "model")
    )
    best = best.iloc[np.lexsort((best.gamma, model, scenario))]
    if (missing := best[best.overall.isna()]).size:
        row = missing.iloc[0]
        words = row.get("learner_message") or row.message
        raise ParameterError(
            f"no candidate of the {row.model} model at gamma = {row.gamma:g} ({row.scenario}) "
            "fits its purchase; give larger values of learner.regularization, or of "
            "objective.sigma (of naive.eta_range for the naive model). The last error: "
            f"{words}"
        )
    return best


def _curve(chosen: Frame) -> Frame:
    """Build the row of each point in the report."""
    table = chosen.rename(columns={"test_error": "error_mean", "test_error_std": "error_std"})
    table["overall_mean"] = table.error_mean + table.gamma * table.payments
    columns = ["mu", "sigma", "regularization", "eta", "n_bought", "payments", "error_mean"]
    columns += ["error_std", "overall_mean", "validation_error", "guarantee_max", "objective"]
    return table[[*_KEY, *columns, "lower_bound", "gap", "epsilon_max"]].reset_index(drop=True)


# ------------------------------------------------------------------------------------- regression

_RIDGE_KEY = ("scenario", "gamma", "regularization")


class RidgeFile(_LearningFile):
    """A market with ridge regression: mu and sigma follow from Theorem 3.6 of R.

    Attributes
    ----------
    units : table
        Names of the units.

    Notes
    -----
    Besides runs, audits and sellers, the table ``curve`` holds for each scenario, gamma and
    regularization: marked (the best bound at gamma in a market at the prior's quantiles), the
    purchase, loss_mean and loss_std of the test error (exact over the noise, squared units of the
    label), rmse, rmse_low and rmse_high (10 % and 90 % of simulated releases), explained (share of
    the constant's squared error), uniform_rmse (one price for all), and the terms of the bound.
    ``choices`` holds the bounds from public facts, ``baselines`` the rmse without noise.
    """

    units: UnitsTable = UnitsTable()

    _purposes: ClassVar[tuple[str, ...]] = ("test",)

    @property
    def facts(self) -> dict[str, Any]:
        """The learner of Theorem 3.6."""
        return {"perturbation": "output", "fit_intercept": False}

    @property
    def _bounded(self) -> dict[str, Any]:
        given = {key: value for key, value in self.learner.options.items() if key in _BOUND}
        return {"failure_probability": 0.05, **given}

    @property
    def _assumed(self) -> dict[str, Any]:
        """Arguments of the learner's risk."""
        if missing := {"label_noise", "coef_norm"} - set(self.learner.options):
            raise ParameterError(f"{sorted(missing)[0]} is missing")
        return {key: self._bounded[key] for key in ("label_noise", "failure_probability")}

    @model_validator(mode="after")
    def _nothing_to_choose(self) -> Self:
        if self.objective.mu is not None or self.objective.sigma is not None:
            raise ValueError("objective: mu and sigma follow from Theorem 3.6; leave them out")
        return self

    def _try(self, regularization: float) -> None:
        super()._try(regularization)
        self._bound(np.ones(1), 1.0, regularization, 1)

    def _plain(self, regularization: float, **arguments: Any) -> PersonalizedRidge:
        """Return the learner of Theorem 3.6, with noise in floating point."""
        return self.learner_of(regularization, rounding=None, **arguments)

    def _bound(
        self, weights: Floats, eta: float, regularization: float, n_features: int
    ) -> RidgeErrorBound:
        """Return the terms of Theorem 3.6 for a purchase."""
        learner = self._plain(regularization)
        kappa = ridge_sensitivity(regularization, n_features, learner.max_norm, learner.sensitivity)
        return ridge_error_bound(
            weights, eta / kappa, regularization, n_features=n_features, **self._bounded
        )

    def _measured(
        self, rows: RegressionData, sellers: dict[str, Sellers], options: dict[str, Any]
    ) -> _Measured:
        values, gammas = self.learner.candidates, self.objective.gamma
        m, n_features = rows.X_train.shape
        choices = self._choices(m, n_features)

        def market(scenario: str, gamma: float, regularization: float) -> Market:
            (mu,), (sigma,) = self.weights(self._plain(regularization), n_features)
            return self.market(sellers[scenario], mu=mu, sigma=sigma, gamma=gamma)

        study = Study(
            {MECHANISM: market},
            axes=dict(zip(_RIDGE_KEY, (list(sellers), gammas, values), strict=True)),
            seed=self.run.seed,
            learner=lambda regularization: self._plain(regularization),
            data=rows,
            noise_draws=self.learner.draws or 200,
        )
        runs = study.run(**options)
        tables = _numbered(runs)
        curve = tables["runs"].merge(choices[["gamma", "regularization", "mu", "sigma", "marked"]])
        if "test_error" not in curve or curve.test_error.isna().any():
            row = curve[curve.get("test_error", np.nan).isna()].iloc[0]
            raise ParameterError(
                f"the market at gamma = {row.gamma:g} and regularization = "
                f"{row.regularization:g} has no model: {row.get('learner_message') or row.message}"
            )
        constant = float(rows.y_test.mean())  # the best constant for the public rows
        constant_rmse = float(np.sqrt(np.mean((rows.y_test - constant) ** 2)))
        measured, guarantees = [], []
        for row in curve.itertuples():
            sold = tables["sellers"][tables["sellers"].run == row.run]
            draws = tables["fits"].test_error[tables["fits"].run == row.run].to_numpy()
            measured.append(self._errors(row, sold, draws, rows, constant_rmse))
            guarantees.append(self._plain(row.regularization).promise(sold.epsilon))
        curve = curve.join(pd.DataFrame(measured, index=curve.index))
        columns = ["marked", "mu", "sigma", "eta", "n_bought", "payments", *measured[0]]
        columns += ["objective", "lower_bound", "gap", "epsilon_max"]
        epsilons = [guarantee.epsilon for guarantee in guarantees]
        offers = _offers(curve, tables["sellers"], _RIDGE_KEY, epsilons)
        baselines = []
        for value in values:
            model = self.learner_of(value, weighting="equal", epsilon=np.inf)
            errors = model.fit(rows.X_train, rows.y_train).predict(rows.X_test) - rows.y_test
            rmse = float(np.sqrt(np.mean(errors**2)))
            baselines.append({"regularization": value, "rmse": rmse})
        keys: dict[str, tuple[str, ...]] = {
            "runs": runs.keys["runs"],
            "curve": _RIDGE_KEY,
            "sellers": (*_RIDGE_KEY, "id"),
            "audits": _RIDGE_KEY,
            "choices": ("gamma", "regularization"),
            "baselines": ("regularization",),
        }
        results = {
            "runs": runs.tables["runs"],
            "curve": curve[[*_RIDGE_KEY, *columns]],
            "sellers": offers.merge(curve[[*_RIDGE_KEY, "marked"]], on=list(_RIDGE_KEY)),
            "audits": runs.tables["audits"].drop(columns="market"),
            "choices": choices,
            "baselines": pd.DataFrame(baselines),
        }
        facts = {"constant": constant, "constant_rmse": constant_rmse, "caveats": CAVEATS_OF_RIDGE}
        return keys, results, facts | {"guarantee": _words(guarantees[0])}

    def _choices(self, m: int, n_features: int) -> Frame:
        """Return the bound at each gamma and lambda in a market at the prior's quantiles.

        It depends on public facts alone, and so does the mark of the best lambda at each gamma.
        """
        quantiles = Sellers(self.prior.quantile((np.arange(m) + 0.5) / m), self.prior)
        rows = []
        for gamma in self.objective.gamma:
            for value in self.learner.candidates:
                (mu,), (sigma,) = self.weights(self._plain(value), n_features)
                point = allocate(self.market(quantiles, mu=mu, sigma=sigma, gamma=gamma))
                bias = self._bound(point.weights, point.eta, value, n_features).bias
                row = {"gamma": gamma, "regularization": value, "mu": mu, "sigma": sigma}
                rows.append(row | {"bias": bias, "expected_objective": bias + point.objective})
        table = pd.DataFrame(rows)
        best = table.groupby("gamma").expected_objective.idxmin()
        return table.assign(marked=table.index.isin(best))

    def _errors(
        self, run: Any, sold: Frame, draws: Floats, rows: RegressionData, constant: float
    ) -> dict[str, Any]:
        """Return the test errors of a purchase, those of one price for all, and the bound."""
        arrays = rows.X_train, rows.y_train, rows.X_test, rows.y_test
        weights, value = sold.weight.to_numpy(), run.regularization
        ridge = self._plain(value, weighting=weights)
        exact = expected_loss(ridge, *arrays, epsilon=sold.epsilon.to_numpy())
        low, high = np.sqrt(np.quantile(draws, (0.1, 0.9)))
        price = self.prior.support[1]
        uniform = run.payments / (len(sold) * price)
        uniform_rmse = np.nan
        if np.isfinite(price) and uniform > 0:
            alike = expected_loss(self._plain(value), *arrays, epsilon=uniform)
            uniform_rmse = float(np.sqrt(alike.mean))
        bound = self._bound(weights, run.eta, value, rows.X_train.shape[1])
        return {
            "epsilon_mean": run.eta / len(sold),
            "loss_mean": exact.mean,
            "loss_std": exact.std,
            "rmse": float(np.sqrt(exact.mean)),
            "rmse_low": float(low),
            "rmse_high": float(high),
            "simulated_loss": float(draws.mean()),
            "simulated_error": float(draws.std(ddof=1) / np.sqrt(draws.size)),
            "explained": 1.0 - exact.mean / constant**2,
            "uniform_epsilon": uniform if np.isfinite(uniform_rmse) else np.nan,
            "uniform_rmse": uniform_rmse,
            **asdict(bound),
            "bound": bound.total,
        }

    def _trainings(self, rows: RegressionData, market_of: Any, value: float) -> list[Family]:
        def ridge(size: int, rng: np.random.Generator) -> Any:
            weights = allocate(market_of(size, rng)).weights
            arguments = rows.X_train, rows.y_train, weights, value, self._bounded["label_noise"]
            return draw_ridge(*arguments, rng)

        return [Family("ridge", ridge)]


def model_of_market(table: Mapping[str, Any]) -> type[ProblemFile]:
    """Return the model of a file of kind "market", by its learner."""
    learner = table.get("learner")
    if learner is None:
        return VariantsFile
    name = learner.get("name") if isinstance(learner, Mapping) else None
    return RidgeFile if name == "PersonalizedRidge" else ClassifierFile
