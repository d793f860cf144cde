"""Problem files of kind "market" with a classifier or a ridge regression."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
from pydantic import ConfigDict, Field, model_validator
from sklearn.metrics import root_mean_squared_error

from convexmarket import errors, learners
from convexmarket.allocation import allocate
from convexmarket.data.datasets import correlate
from convexmarket.deal import Deal, buy
from convexmarket.learners.ridge_math import RidgeErrorBound, ridge_error_bound
from convexmarket.market import Market
from convexmarket.privacy.sensitivity import ridge_sensitivity
from convexmarket.report import Report
from convexmarket.sellers import Sellers
from convexmarket.studies.files import file_tables as tables
from convexmarket.studies.files import market_page
from convexmarket.studies.files.market_page import CHARGED, MECHANISM, NAIVE, Frame
from convexmarket.studies.files.people import SOLD, Data, OwnData, read_people
from convexmarket.studies.runs import Runs
from convexmarket.studies.study import Study, constant_error
from convexmarket.studies.subproblems.problem_classes import Family, families_of_market
from convexmarket.terms import Cap, GroupShare, Noise, Spread

#: Key columns and rows of each table by name, and the facts of the report.
Measured = tuple[dict[str, tuple[Sequence[str], Frame]], dict[str, Any]]

REPORTED = "reported"
#: Index of the random stream from which sensitivities are drawn.
_SENSITIVITIES = 0
#: Constructor arguments that cannot be additional keys of the table ``learner``.
_OURS = {"regularization", "epsilon", "random_state", "features", "classes"}
_OFFERS = ["id", "sensitivity", "virtual_cost", "weight", "epsilon", "guarantee", "payment"]

CAVEATS = (
    "The guarantees are those of one model whose parameters are fixed before reports and rows are "
    "read. They do not cover a choice between models, or the release of several models.",
    "Incentives are audited in each market, with fixed parameters. A choice between candidates by "
    "their total payments depends on the reports, and is not truthful.",
    "The noise comes from the seed of the problem file, which is public; a release draws fresh "
    "noise. Validation and test use the same draws.",
)


class ReportsTable(tables.Table):
    """Reports of the sellers, and their relation to the rows."""

    sensitivities: tables.Many[tables.Nonnegative] | None = None
    """Sensitivities, one for each training row; by default, they are drawn from the prior."""
    scenarios: tables.Several[Literal["independent", "correlated"]] = ("independent",)
    """Scenarios to compare. In the scenario "correlated", the row with the k-th smallest value of a
    feature has the k-th smallest sensitivity (B, section 5)."""
    correlated_with: tables.Column | Annotated[int, Field(ge=0, le=tables.MOST_ENTRIES)] = 0
    """Name or position of the feature for the scenario "correlated"."""


class BuyerTable(tables.Table):
    """Objective and constraints of the buyer."""

    gamma: tables.Several[tables.Positive]
    """Weights of the payments, in units of the objective per unit of currency."""
    cap: Annotated[float, Field(ge=1)] | None = None
    """Largest weight of a row, in multiples of the average weight."""


class LearnerTable(tables.Table):
    """Private learner. All other keys are arguments of its constructor."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"additionalProperties": tables.ARGUMENT}
    )

    name: Any
    regularization: tables.Several[tables.Positive] | Literal["auto"]
    """Candidate values; for a classifier, "auto" computes a value from public quantities."""

    @property
    def options(self) -> dict[str, Any]:
        """The constructor arguments that the other keys of the table give."""
        given = (self.model_extra or {}).items()
        return {key: tuple(value) if isinstance(value, list) else value for key, value in given}

    @property
    def candidates(self) -> tuple[Any, ...]:
        """Candidate values of the regularization."""
        return ("auto",) if self.regularization == "auto" else self.regularization


class LearningFile(tables.ProblemFile):
    """Base class of problem files with a learner."""

    kind: Literal["market"]
    data: Annotated[Data, Field(discriminator="source")]
    prior: tables.PriorTable
    sellers: ReportsTable = ReportsTable()
    objective: BuyerTable
    learner: LearnerTable

    #: Purposes for which a file declares public rows, such as "validation" and "test".
    purposes: ClassVar[tuple[str, ...]]
    #: Constructor arguments that are determined by other tables of the file.
    facts: ClassVar[Any]
    measured: ClassVar[Any]

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        data = self.data
        if isinstance(data, OwnData):
            if set(data.public) != set(self.purposes):
                shares = ", ".join(f"{part} = 0.2" for part in self.purposes)
                text = "data.public declares the public rows, which are not bought; give public"
                raise ValueError(f"{text} = {{ {shares} }}, or files instead of shares")
            if data.report is not None and self.sellers != ReportsTable():
                text = f"sellers: the column data.report, {data.report!r}, contains the reports"
                raise ValueError(f"{text}; leave out either data.report or the table sellers")
        if data.is_classification != ("validation" in self.purposes):
            kind = "a regression" if data.is_classification else "a classifier"
            text = f"data: the labels do not fit {kind}"
            raise ValueError(f"{text}; give other data, or another learner.name")
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
        """Construct the learner with the given regularization."""
        made: Any = getattr(learners, self.learner.name)
        known, options = inspect.signature(made).parameters, self.learner.options
        free = [key for key in known if key not in _OURS | self.facts.keys()]
        tables.refuse_unknown(options, [*type(self.learner).model_fields, *free])
        facts = {key: value for key, value in self.facts.items() if key in known}
        return made(regularization=regularization, **(facts | options | arguments))

    def weights(self, learner: Any, n_features: int) -> tuple[Sequence[float], Sequence[float]]:
        """Return the candidates for mu and sigma, by default from the learner's error bound."""
        known = self.learner.model_dump(include={"label_noise", "failure_probability"})
        mu, sigma = learner.risk(n_features, **known)
        given = self.objective
        return getattr(given, "mu", None) or (mu,), getattr(given, "sigma", None) or (sigma,)

    def read(self) -> tuple[Any, dict[str, Sellers]]:
        """Read the rows, and create the sellers of the training rows for each scenario."""
        table, (rows, ids, reported) = self.sellers, self.data.load(self)
        if reported is not None:
            return rows, {REPORTED: Sellers(reported, self.prior, ids)}
        rng = np.random.default_rng(self.run.stream(_SENSITIVITIES))
        reports = {"independent": table.sensitivities or self.prior.sample(len(rows.X_train), rng)}
        if (given := len(reports["independent"])) != len(rows.X_train):
            text = f"sellers.sensitivities has {given} entries for {len(rows.X_train)} rows"
            raise errors.ProblemFileError(f"{text}; give one for each row, or omit the list")
        if "correlated" in table.scenarios:
            names, feature = list(rows.feature_names), table.correlated_with
            if not (feature in names or feature in range(len(names))):
                known = f"a position below {len(names)} or one of {', '.join(names)}"
                text = f"sellers.correlated_with must be {known}, got {feature!r}"
                raise errors.ProblemFileError(text)
            place = names.index(feature) if isinstance(feature, str) else feature
            reports["correlated"] = correlate(reports["independent"], rows.X_train, place)
        return rows, {name: Sellers(reports[name], self.prior, ids) for name in table.scenarios}

    def offers(self, sold: Frame, key: Sequence[str], n_features: int) -> Frame:
        """Add guarantees to the offers. With charged tuning, they equal the privacy sold."""
        sold = sold.assign(guarantee=sold.epsilon)
        sold["surplus"] = sold.payment - sold.sensitivity * sold.epsilon
        for _, part in sold.dropna(subset=["regularization"]).groupby(list(key), sort=False):
            learner = self.learner_of(part.regularization.iloc[0])
            sold.loc[part.index, "guarantee"] = learner.promise(part.epsilon, n_features).epsilon
        return sold[[*key, *_OFFERS, "surplus"]]

    def _performed(self, load: Any, options: dict[str, Any]) -> Runs:
        rows, sellers = self.read()
        options |= {"audit_sellers": 200, "misreports": 17}
        measured, facts = self.measured(rows, sellers, options)
        sizes = {part: len(getattr(rows, f"y_{part}")) for part in ("train", *self.purposes)}
        facts |= {"data": rows.description, "seed": self.run.seed, "rows": sizes}
        keys = {name: tuple(each[0]) for name, each in measured.items()}
        return Runs("study", keys, {name: each[1] for name, each in measured.items()}, facts)

    def buy(
        self,
        *,
        group: str | None = None,
        at_least: Mapping[str, float] | None = None,
        **options: Any,
    ) -> Deal:
        """Buy from the sellers of a user's table, and train the model.

        ``group`` names the column of the sellers' groups. ``at_least`` maps groups to lower bounds
        on their shares of the weight. ``options`` are arguments of :func:`convexmarket.buy`, of
        which ``gamma`` or ``budget`` replaces the gamma of the file.
        """
        data, cap = self.data, self.objective.cap
        if not isinstance(data, OwnData) or data.report is None:
            raise errors.NotSupportedError(
                "buying needs a table with a column of reports; set data.source to csv or parquet, "
                "and data.report to this column (convexmarket init drafts such a problem file)"
            )
        if group in (data.id, data.report, data.label, *data.features) and group is not None:
            raise errors.ParameterError(f"--group-column {group!r} is private; give another column")
        if at_least and group is None:
            raise errors.ParameterError("at_least needs the column of groups: --group-column")
        if options.get("gamma") is None and options.get("budget") is None:
            remedy = ", or --gamma or --budget"
            options["gamma"] = _single("objective.gamma", self.objective.gamma, remedy)
        features = data.public_features
        domain = {"classes": data.classes} if data.classes else {"rounding": "auto"}
        value = _single("learner.regularization", self.learner.candidates)
        learner = self.learner_of(value, features=features, **domain)
        mus, sigmas = self.weights(learner, features.n_features_out_)
        mu, sigma = _single("objective.mu", mus), _single("objective.sigma", sigmas)
        reading = {name: options.pop(name, ()) for name in ("na_values", "show_cells")}
        parts = read_people(self, group, **reading)
        constraints: list[Any] = [] if cap is None else [Cap(cap)]
        if at_least:
            constraints.append(GroupShare(parts[SOLD][group], at_least))
        return buy(
            parts[SOLD],
            ask=data.report,
            target=data.label,
            prior=self.prior,
            learner=learner,
            test=parts["test"],
            objective=mu * Spread() + sigma * Noise(),
            constraints=constraints,
            group=group,
            **options,
        )

    def _page(self, runs: Runs) -> Report:
        return market_page.learning_report(self, runs)

    def subproblems(self) -> list[Family]:
        """Return the subproblems of the market for the middle candidate of each parameter."""
        values, cap, rows = self.learner.candidates, self.objective.cap, self.data.load(self).rows
        learner = self.learner_of(values[len(values) // 2])
        numbers = (*self.weights(learner, rows.X_train.shape[1]), self.objective.gamma)
        mu, sigma, gamma = (listed[len(listed) // 2] for listed in numbers)

        def market_of(size: int, rng: np.random.Generator) -> Market:
            drawn, most = self.prior.sample(size, rng), cap and min(cap, size)
            sellers = Sellers(drawn, self.prior)
            return Market.standard(sellers, mu=mu, sigma=sigma, gamma=gamma, cap=most)

        return families_of_market(market_of(50, np.random.default_rng(0)), market_of)


def _single(key: str, values: Sequence[Any], instead: str = "") -> Any:
    """Return the only value of a list. A choice between several values would use private data."""
    if len(values) == 1:
        return values[0]
    listed = ", ".join(f"{value:g}" for value in values)
    cause = f"{key} lists {listed}, but a purchase requires one value, fixed before reports and"
    remedy = f"rows are read; give --set {key}=[{values[0]!r}]{instead}"
    raise errors.ParameterError(f"{cause} {remedy}")


_KEY = ["scenario", "model", "gamma"]
_CURVE = ["mu", "sigma", "regularization", "eta", "n_bought", "payments", "error_mean", "error_std"]
_CURVE += ["overall_mean", "validation_error", "guarantee_max", "objective", "lower_bound", "gap"]
_CURVE += ["epsilon_max"]
_NAMES = {"test_error": "error_mean", "test_error_std": "error_std"}


class CandidatesTable(BuyerTable):
    """Objective and constraints of the buyer, with candidates for the weights of the terms."""

    mu: tables.Several[tables.Positive] | None = None
    """Weights of the spread; by default, the constant of the learner's error bound."""
    sigma: tables.Several[tables.Positive] | None = None
    """Weights of the noise; by default, the constant of the learner's error bound."""


class ClassifierTable(LearnerTable):
    """Private classifier. All other keys are arguments of its constructor."""

    name: Literal["PrivateLogisticRegression", "PrivateLinearSVC"] = "PrivateLogisticRegression"
    """Class of convexmarket.learners; :class:`convexmarket.Study` also accepts other classes."""
    draws: Annotated[int, Field(ge=1, le=10_000)] = 15
    """Number of noise draws for each model."""
    tuning: Literal["free", "charged"] = "free"
    """If "charged", an additional model chooses Lambda privately, within the privacy sold."""


class NaiveTable(tables.Table):
    """Naive model with mu = sigma = 0, which has an optimum only for a fixed eta."""

    eta_range: Annotated[tuple[tables.Positive, tables.Positive], Field(strict=False)]
    """Smallest and largest value of eta."""
    grid: Annotated[int, Field(ge=1, le=1_000)] = 8
    """Number of values of eta to try, in geometric progression."""


class ClassifierFile(LearningFile):
    """Market with a classifier, as in Algorithm 2 and Fig. 2 of A.

    The table ``runs`` contains all combinations of gamma, mu, sigma and Lambda. For each gamma,
    ``curve`` contains the run with the smallest sum of validation error and gamma times payments.
    The column overall_mean is the test error plus gamma times payments. The naive model of the
    papers has mu = sigma = 0, and the same sum determines its eta. The model "charged tuning"
    chooses Lambda in each draw within the privacy sold. All models use the same noise draws.
    """

    objective: CandidatesTable
    learner: ClassifierTable
    naive: NaiveTable | None = None

    purposes: ClassVar[tuple[str, ...]] = ("validation", "test")

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        if self.naive is not None and self.naive.eta_range[0] >= self.naive.eta_range[1]:
            raise ValueError("naive.eta_range is empty; give [low, high] with low < high")
        if self.learner.tuning == "charged" and self.learner.options.get("calibration") == "noise":
            raise ValueError("learner.tuning = 'charged' requires learner.calibration = 'total'")
        return self

    @property
    def facts(self) -> dict[str, Any]:
        """Public facts and solver tolerance for the constructor of the learner."""
        return {"data_norm": self.data.data_norm, "cap": self.objective.cap, "tol": 1e-9}

    def measured(self, rows: Any, sellers: dict[str, Sellers], options: Any) -> Measured:
        """Evaluate the candidates, select one at each gamma, and audit the selected markets."""
        values, gammas, cap = self.learner.candidates, self.objective.gamma, self.objective.cap
        mus, sigmas = self.weights(self.learner_of(values[0]), rows.X_train.shape[1])

        def market(scenario: str, gamma: float, mu: float, sigma: float) -> Market:
            return Market.standard(sellers[scenario], mu=mu, sigma=sigma, gamma=gamma, cap=cap)

        def naive(scenario: str, eta_bought: float) -> Market:
            fixed, plain = (eta_bought, eta_bought), {"mu": 0.0, "sigma": 0.0, "gamma": 1.0}
            return Market.standard(sellers[scenario], **plain, cap=cap, eta_range=fixed)

        trained: Any = {"data": rows, "noise_draws": self.learner.draws, "seed": self.run.seed}
        markets: dict[str, Any] = {MECHANISM: market}
        points: dict[str, Any] = {"scenario": list(sellers), "gamma": gammas}
        axes = points | {"mu": mus, "sigma": sigmas, "regularization": values}
        if self.naive is not None:
            markets[NAIVE] = naive
            axes["eta_bought"] = np.geomspace(*self.naive.eta_range, self.naive.grid).tolist()
        learner: Any = {"learner": lambda regularization: self.learner_of(regularization)}
        tried = Study(markets, axes=axes, **learner, **trained).run(audits="none", **options)
        runs, keys = tried.tables["runs"], list(tried.keys["runs"])
        places = _chosen(runs, gammas)[[*keys, "model", "price"]]
        chosen: dict[str, Frame] = {
            name: places.merge(tried.tables[name], on=keys).assign(gamma=lambda table: table.price)
            for name in ("runs", "sellers", "fits")
        }
        best = chosen["runs"].query("model == @MECHANISM").set_index(list(points))[["mu", "sigma"]]

        def bought(scenario: str, gamma: float) -> Market:
            return market(scenario, gamma, *best.loc[(scenario, gamma)])

        def search(scenario: str, gamma: float) -> Any:
            return self._search(allocate(bought(scenario, gamma)).epsilon, rows)

        is_charged = self.learner.tuning == "charged"
        searched = {"learner": search, **trained} if is_charged else {}
        again = Study({MECHANISM: bought}, axes=points, **searched)
        audited = dict(again.run(payments="exact" if is_charged else "none", **options).tables)
        if is_charged:
            audited["runs"] = audited["runs"].join(best, on=list(points))
            for name, table in chosen.items():
                parts = [table, audited[name].assign(model=CHARGED)]
                chosen[name] = pd.concat(parts, ignore_index=True)
        curve = chosen["runs"].rename(columns=_NAMES).fillna({"mu": 0.0, "sigma": 0.0})
        fits = chosen["fits"].rename(columns={"noise_draw": "draw"})
        curve["overall_mean"] = curve.error_mean + curve.gamma * curve.payments
        scale = curve.gamma.where(curve.model == NAIVE, 1.0)  # the naive purchase has gamma = 1
        curve = curve.assign(**{each: curve[each] * scale for each in ("objective", "lower_bound")})
        return {
            "runs": (keys, runs),
            "curve": (_KEY, curve[[*_KEY, *_CURVE]]),
            "draws": ([*_KEY, "draw"], fits[[*_KEY, "draw", "test_error"]]),
            "sellers": ([*_KEY, "id"], self.offers(chosen["sellers"], _KEY, rows.X_train.shape[1])),
            "audits": (_KEY, audited["audits"].rename(columns={"market": "model"})),
        }, {**self._baseline(rows), "one_class_error": constant_error(rows), "caveats": CAVEATS}

    def _search(self, sold: Any, rows: Any) -> learners.PrivateSearch:
        candidates = []
        for value in self.learner.candidates:
            with suppress(errors.ParameterError):
                self.learner_of(value).promise(sold / 2 * (1 - 1e-9), rows.X_train.shape[1])
                candidates.append(value)
        if not (candidates and sold.any()):
            raise errors.ParameterError("half of the privacy sold is too little for every Lambda")
        return learners.PrivateSearch(
            self.learner_of(candidates[0]),
            {"regularization": candidates},
            validation=(rows.X_validation, rows.y_validation),
            trials=float(len(candidates)),
        )

    def _baseline(self, rows: Any) -> dict[str, Any]:
        """Compute the test error without privacy for the Lambda with the least validation error."""
        models = {
            value: self.learner_of(value).fit(rows.X_train, rows.y_train, epsilon=np.inf)
            for value in sorted(self.learner.candidates, reverse=True)  # ties select the largest
        }
        validation = rows.X_validation, rows.y_validation
        value = max(models, key=lambda value: models[value].score(*validation))
        error = np.mean(models[value].predict(rows.X_test) != rows.y_test)
        return {"baseline_error": float(error), "baseline_regularization": value}


def _chosen(runs: Frame, gammas: Sequence[float]) -> Frame:
    """Select the run of least overall error at each point. For ties, select the largest Lambda."""
    runs = runs.assign(model=runs.market, price=runs.gamma)
    points, every = ["scenario", "model", "price"], pd.DataFrame({"price": gammas})
    fixed = runs[runs.model == NAIVE].drop(columns="price").merge(every, how="cross")
    tried = pd.concat([runs[runs.model == MECHANISM], fixed], ignore_index=True)
    error, paid = (tried.get(name, np.nan) for name in ("validation_error", "payments"))
    tried["overall"] = error + tried.price * paid
    order = tried.sort_values(["overall", "regularization"], ascending=[True, False], kind="stable")
    best = tried[points].drop_duplicates().merge(order.drop_duplicates(points))
    for row in best[best.overall.isna()].itertuples():
        raise errors.ParameterError(
            f"no candidate of the {row.model} model at gamma = {row.price:g} ({row.scenario}) "
            "can be trained with the privacy bought; give larger learner.regularization or "
            "objective.sigma (for the naive model, naive.eta_range). The last error is: "
            f"{row.message}"
        )
    return best


_POINT = ["scenario", "gamma", "regularization"]
_REGRESSION = [*_POINT, "marked", "mu", "sigma", "eta", "n_bought", "payments", "objective"]
_REGRESSION += ["lower_bound", "gap", "epsilon_max"]
_RIDGE_CAVEATS = (
    *CAVEATS,
    "Theorem 3.6 bounds coefficients in the worst case and assumes a linear label with Gaussian "
    "noise. Truthfulness and privacy do not depend on these assumptions, but the quality of the "
    "purchase does.",
    "The expected errors are computed from the sold rows and have no privacy guarantee.",
)


class RidgeTable(LearnerTable):
    """Private ridge regression. All other keys are arguments of its constructor."""

    name: Literal["PersonalizedRidge"]
    regularization: tables.Several[tables.Positive]
    """Candidate values of lambda."""
    label_noise: tables.Nonnegative
    """Estimated standard deviation of the label noise, with target_range mapped to [-1, 1]."""
    coef_norm: tables.Nonnegative
    """Estimated norm of the true coefficients, with target_range mapped to [-1, 1]."""
    smallest_eigenvalue: tables.Nonnegative = 0.0
    """Lower bound on the eigenvalues of the weighted second-moment matrix of the rows."""
    failure_probability: tables.Share = 0.05
    """Upper bound on the probability that the error bound does not hold."""


class UnitsTable(tables.Table):
    """Unit of the labels in the report."""

    label: Annotated[str, Field(min_length=1, max_length=50)] = "units of the label"
    """Name of the unit."""
    per_label: tables.Positive = 1.0
    """Number of units that correspond to a label of 1."""


class RidgeFile(LearningFile):
    """Market with a ridge regression, in which mu and sigma follow from Theorem 3.6 of R.

    Lambda is fixed in advance, and test errors are exact expectations over the noise. For each
    scenario, gamma and regularization, the table ``curve`` contains the purchase, the moments of
    the test error and the terms of the error bound. The column marked identifies the lambda with
    the best bound at the prior's quantiles. The column uniform_rmse is the RMSE with one price for
    all sellers. The table ``choices`` contains the public bounds, and ``baselines`` contains the
    RMSE without noise.
    """

    learner: RidgeTable
    units: UnitsTable = UnitsTable()

    purposes: ClassVar[tuple[str, ...]] = ("test",)
    #: Arguments of the learner of Theorem 3.6. Its noise is in floating point, unlike in ``buy``.
    facts: ClassVar[Any] = {"perturbation": "output", "fit_intercept": False, "rounding": None}

    def _market(self, sellers: Sellers, gamma: float, value: float, n_features: int) -> Market:
        (mu,), (sigma,) = self.weights(self.learner_of(value), n_features)
        return Market.standard(sellers, mu=mu, sigma=sigma, gamma=gamma, cap=self.objective.cap)

    def _bound(self, weights: Any, eta: float, value: float, n_features: int) -> RidgeErrorBound:
        learner = self.learner_of(value)
        kappa = ridge_sensitivity(value, n_features, learner.max_norm, learner.sensitivity)
        facts = self.learner.model_dump(exclude={"name", "regularization", *self.learner.options})
        return ridge_error_bound(weights, eta / kappa, value, n_features=n_features, **facts)

    def measured(self, rows: Any, sellers: dict[str, Sellers], options: Any) -> Measured:
        """Allocate the market at every gamma and lambda, and compute the errors of the models."""
        values, (m, n_features) = self.learner.candidates, rows.X_train.shape

        def market(scenario: str, gamma: float, regularization: float) -> Market:
            return self._market(sellers[scenario], gamma, regularization, n_features)

        axes = dict(zip(_POINT, (list(sellers), self.objective.gamma, values), strict=True))
        runs = Study({MECHANISM: market}, axes=axes).run(**options)
        table, sold = runs.tables["runs"], runs.tables["sellers"]
        for row in table[table.status != "solved"].itertuples():
            raise errors.ParameterError(f"no optimum at gamma = {row.gamma:g}: {row.message}")
        choices = self._public_bounds(m, n_features)
        curve: Frame = table.merge(choices[["gamma", "regularization", "mu", "sigma", "marked"]])
        points = zip(curve.itertuples(), sold.groupby(_POINT, sort=False), strict=True)
        measured = pd.DataFrame([self._errors(run, part, rows) for run, (_, part) in points])
        curve = curve[_REGRESSION].join(measured)
        offers = self.offers(sold, _POINT, n_features)
        baselines = {}
        for value in values:
            model = self.learner_of(value, weighting="equal", epsilon=np.inf)
            predicted = model.fit(rows.X_train, rows.y_train).predict(rows.X_test)
            baselines[value] = root_mean_squared_error(rows.y_test, predicted)
        plain = pd.DataFrame({"regularization": values, "rmse": baselines.values()})
        constant = float(np.sqrt(constant_error(rows)))  # RMSE of the mean label of public rows
        return {
            "runs": (runs.keys["runs"], table),
            "curve": (_POINT, curve),
            "sellers": ([*_POINT, "id"], offers.merge(curve[[*_POINT, "marked"]])),
            "audits": (_POINT, runs.tables["audits"].drop(columns="market")),
            "choices": (_POINT[1:], choices),
            "baselines": (_POINT[2:], plain),
        }, {"constant_rmse": constant, "caveats": _RIDGE_CAVEATS}

    def _public_bounds(self, m: int, n_features: int) -> Frame:
        """Compute the bounds at the prior's quantiles, and mark the best lambda for each gamma."""
        quantiles = Sellers(self.prior.quantile((np.arange(m) + 0.5) / m), self.prior)
        rows = []
        for gamma, value in product(self.objective.gamma, self.learner.candidates):
            market = self._market(quantiles, gamma, value, n_features)
            point, form = allocate(market), market.form
            bias = self._bound(point.weights, point.eta, value, n_features).bias
            row = {"gamma": gamma, "regularization": value, "mu": form.mu, "sigma": form.sigma}
            rows.append(row | {"bias": bias, "expected_objective": bias + point.objective})
        table = pd.DataFrame(rows)
        best = table.groupby("gamma").expected_objective.idxmin()
        return table.assign(marked=table.index.isin(best))

    def _errors(self, run: Any, sold: Frame, rows: Any) -> dict[str, Any]:
        arrays = rows.X_train, rows.y_train, rows.X_test, rows.y_test
        weights, value = sold.weight.to_numpy(), run.regularization
        ridge = self.learner_of(value, weighting=weights)
        exact = learners.expected_loss(ridge, *arrays, epsilon=sold.epsilon.to_numpy())
        uniform = run.payments / (len(sold) * self.prior.support[1])  # 0 for an unbounded support
        alike = np.nan
        if uniform > 0:
            alike = learners.expected_loss(self.learner_of(value), *arrays, epsilon=uniform).mean
        bound = self._bound(weights, run.eta, value, rows.X_train.shape[1])
        return {
            "epsilon_mean": run.eta / len(sold),
            "loss_mean": exact.mean,
            "loss_std": exact.std,
            "rmse": float(np.sqrt(exact.mean)),
            "uniform_epsilon": uniform or np.nan,
            "uniform_rmse": float(np.sqrt(alike)),
            **bound._asdict(),
            "bound": bound.total,
        }
