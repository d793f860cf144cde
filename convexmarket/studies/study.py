"""``Study``: a comparison of markets over axes and paired draws, optionally with a learner."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from itertools import product
from os import PathLike
from typing import Any, Literal

import joblib
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket import checks, errors
from convexmarket.allocation import allocate
from convexmarket.allocation.solver_calls import check_solver
from convexmarket.data.datasets import MarketData, RegressionData
from convexmarket.incentives.audit import audit_incentives
from convexmarket.incentives.rules import estimate_payments
from convexmarket.learners.private_learner import unfitted
from convexmarket.market import Market
from convexmarket.privacy import PrivacyAccountant, Simulation
from convexmarket.studies.execution import Execution, ending
from convexmarket.studies.progress import Progress
from convexmarket.studies.runs import Runs
from convexmarket.terms import Objective

Floats = NDArray[np.float64]
Row = dict[str, Any]  # a row of a table, or the market, axis values and draw of a run

#: Markets whose payments are computed: those with closed-form payments, all markets, or none.
Extent = Literal["exact", "all", "none"]

#: Fraction of the average weight below which a weight counts as zero.
ZERO_WEIGHT = 1e-6
#: Spawn keys of the seed for random markets and for the noise of the learner.
_MARKETS, _NOISE = 0, 1
_DRAWN = "draw"  # name of the parameter for a random generator

_FAILED: dict[type[Exception], str] = {
    errors.InfeasibleMarketError: "infeasible",
    errors.UnattainedOptimumError: "not attained",
    errors.ConvexMarketError: "failed",
}

AUDITED = {"largest_gain_from_misreporting": "max_gain", "smallest_surplus": "min_surplus"}

#: Columns of the tables of results, which cannot be names of axes.
_NAMES = "market draw status message n_sellers incentives reason objective lower_bound gap eta id"
_NAMES += " method seconds error spread noise n_effective n_bought epsilon_max solver solves"
_NAMES += " expected_payments payments sensitivity virtual_cost weight epsilon payment noise_draw"
_NAMES += " group test_error validation_error guarantee_max max_gain min_surplus sellers_audited"
_NAMES += " sellers expected_payment payments_method payments_error tolerance misreports_per_seller"
_COLUMNS = {*_NAMES.split(), "incentive_compatible", "individually_rational"}

CAVEATS = (
    "The sellers are given, or drawn from a prior; other sellers lead to other results.",
    "Objectives with different terms are in different units; compare guarantees and payments.",
    "Expected payments, psi'u(eps), and payments have the same mean over the prior.",
)
_CAVEAT_OF_LEARNERS = "No guarantee covers a choice among these runs by their validation errors."


class Study:
    """A comparison of the allocations, payments, audits and trained models of several markets.

    Parameters
    ----------
    markets : mapping of str, or sequence
        Each is a :class:`Market` or a function that returns a market. Required parameters of a
        function are names of ``axes`` or ``draw``, a :class:`numpy.random.Generator`:
        ``lambda gamma, draw: cm.Market(...)``.
    axes : mapping of str to sequence, optional
        Values of each axis, which are numbers or text. Every combination is a run.
    draws : int, default 1
        Number of draws at each point for functions with a parameter ``draw``. The k-th draw has
        the same random numbers at every point, so that points are compared on paired draws.
    seed : int, default 0
        Seed of the draws and of the learner's noise.
    learner : learner, or function that returns a learner, optional
        Trained under the guarantees of each allocation, with ``fit``, ``guarantee_`` and
        ``predict``. Required parameters of a function are names of axes, as in
        ``lambda regularization: cm.PrivateLogisticRegression(...)``.
    data : MarketData or RegressionData, optional
        Rows for the learner, with one training row for each seller.
    noise_draws : int, default 1
        Number of models trained at each point, with paired noise.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.3, 0.6], prior=cm.Uniform(0, 1))
    >>> base = cm.Spread() + cm.Noise() + 0.5 * cm.Payments()
    >>> study = cm.Study({
    ...     "free": cm.Market(sellers, base),
    ...     "capped": cm.Market(sellers, base, [cm.Cap(1.5)]),
    ... })
    >>> runs = study.run(progress=False)
    >>> runs.to_frame()[["market", "n_bought", "payments"]].round(3)
       market  n_bought  payments
    0    free         2     0.923
    1  capped         3     1.188
    """

    def __init__(
        self,
        markets: Any,
        *,
        axes: Mapping[str, Sequence[Any]] | None = None,
        draws: int = 1,
        seed: int = 0,
        learner: Any = None,
        data: MarketData | RegressionData | None = None,
        noise_draws: int = 1,
    ) -> None:
        self.markets = named_entries("markets", markets)
        self.draws = checks.check_count("draws", draws)
        self.seed = checks.check_count("seed", seed, 0)
        self.noise_draws = checks.check_count("noise_draws", noise_draws)
        self.learner, self.data = learner, data
        axes = {} if axes is None else axes
        checks.check_instance("axes", axes, Mapping, "lists of values by name, {'gamma': [1]}")
        self.axes: dict[str, list[Any]] = {}
        for name, values in axes.items():
            checks.check_list(f"axes.{name}", values, "numbers or text")
            listed = [x.item() if isinstance(x, np.generic) else x for x in values]
            is_valid = all(isinstance(value, str | int | float) for value in listed)
            if not is_valid or not 0 < len(set(listed)) == len(listed):
                kinds = "distinct numbers or texts"
                raise errors.ParameterError(f"axes.{name} must be {kinds}, got {listed}")
            self.axes[name] = listed
        kinds = "a Market or a function that returns one"
        for name, market in self.markets.items():
            checks.check_instance(f"markets: {name!r}", market, (Market, Callable), kinds)
        if (learner is None) != (data is None):
            raise errors.ParameterError("learner and data belong together; give both, or neither")
        is_valid = learner is None or callable(learner)
        if callable(fit := getattr(learner, "fit", None)):
            accepted = inspect.signature(fit).parameters.values()
            is_valid = any(x.name == "epsilon" or x.kind is x.VAR_KEYWORD for x in accepted)
        if isinstance(learner, type) or not is_valid:
            kinds = "a learner with fit(X, y, epsilon=...), or a function that returns one"
            raise errors.ParameterError(f"learner must be {kinds}, got {checks.shown(learner)}")
        self._is_drawn = any(_DRAWN in _parameters(each) for each in self.markets.values())
        if self.draws > 1 and not self._is_drawn:
            remedy = "pass functions such as lambda draw: cm.Market(...), or give noise_draws"
            raise errors.ParameterError(f"draws is {draws}, but no market uses draw; {remedy}")
        kinds = "a MarketData or RegressionData, such as datasets.wdbc()"
        checks.check_instance("data", data, (MarketData, RegressionData, type(None)), kinds)
        idle, known = set(self.axes), {*self.axes, _DRAWN}
        for name, function in (*self.markets.items(), ("learner", learner)):
            idle -= _parameters(function)
            for unknown in _parameters(function, required=True) - known:
                unmet = f"the parameter {unknown!r}, which is not an axis"
                raise errors.ParameterError(f"{name!r} has {unmet}; add it to axes")
        for name in [*({*_COLUMNS} & {*self.axes}), *idle]:
            why = "a column of the results" if name in _COLUMNS else "which no function takes"
            raise errors.ParameterError(f"axes names {name!r}, {why}; rename it")

    def run(
        self,
        *,
        payments: Extent = "exact",
        audits: Extent = "exact",
        tol: float = 1e-2,
        audit_sellers: int = 5,
        misreports: int = 17,
        solver: str | Sequence[str] | None = None,
        gap: float = 1e-6,
        jobs: int = 1,
        time_limit: float | None = None,
        memory_limit: float | None = None,
        journal: str | PathLike[str] | None = None,
        progress: bool | Progress = True,
    ) -> Runs:
        """Allocate every market, compute payments, run audits, and train and test the learner.

        The failure of a market is recorded in its row, and does not affect other markets.

        Parameters
        ----------
        payments, audits : {"exact", "all", "none"}
            Markets for which payments are computed, and markets that are audited. "exact" selects
            the markets with closed-form payments.
        tol : float
            Relative error of payments without a closed form.
        audit_sellers, misreports : int
            Numbers of audited sellers in each market and of misreports of each seller.
        solver, gap : str or sequence of str, float
            Passed to :func:`allocate`.
        jobs : int
            Number of parallel runs, or -1 for one per core. The results do not depend on it.
        time_limit, memory_limit : float, optional
            Limits in seconds and megabytes. With a limit, each run uses a separate process.
        journal : path, optional
            File that records each completed run. The same call resumes an interrupted study.
            Functions are also called before the runs, to detect changes of the returned markets.
        progress : bool or callable
            Whether to print progress to standard error, or a function of (stage, done, total).

        Returns
        -------
        Runs
            The key columns are market, the axes, and draw if a function takes draws. The tables are

            - ``runs``: status ("solved", or the failure) and message; objective, lower_bound,
              gap; error (the objective without payments), spread (norm of the weights), noise
              (1/eta), n_effective, eta, n_sellers, n_bought, epsilon_max; expected_payments
              (psi'u(eps)); payments, with their error and method; incentives and reason; method,
              solver, solves, seconds. With a learner, also the mean test_error and
              validation_error, test_error_std and guarantee_max;
            - ``sellers``: the sensitivity, virtual_cost, weight, epsilon and payments of each id;
            - ``audits``: max_gain, min_surplus, incentive_compatible, individually_rational;
            - ``fits``: with a learner, the errors of each noise_draw.
        """
        checks.check_choice("payments", payments, Extent)
        checks.check_choice("audits", audits, Extent)
        plan = {
            "payments": payments,
            "audits": audits,
            "tol": checks.check_share("tol", tol),
            "audit_sellers": checks.check_count("audit_sellers", audit_sellers),
            "misreports": checks.check_count("misreports", misreports, 2),
            "solver": solver,
            "gap": checks.check_share("gap", gap),
            "seed": self.seed,
            "noise_draws": self.noise_draws,
        }
        for name in [solver] if isinstance(solver, str) else solver or ():
            check_solver(name)
        execution = Execution(jobs, time_limit, memory_limit, journal, progress)
        points, calls = self._points(), {}
        common = [plan, joblib.hash(self.data), version("convexmarket")]
        for point in points:
            market = self.markets[point["market"]]
            recorded = () if journal is None else (market, self.learner)
            key = joblib.hash([point, common, [_definition(e, point, self.seed) for e in recorded]])
            calls[key] = market, point, plan, self.learner, self.data
        replies = execution.run(_solve, calls, "markets")
        shared = tuple(points[0])
        keys = {"runs": shared, "sellers": (*shared, "id"), "audits": shared}
        keys |= {} if self.learner is None else {"fits": (*shared, "noise_draw")}
        tables: dict[str, list[Any]] = {name: [] for name in keys}
        for point, reply in zip(points, replies.values(), strict=True):
            status = "failed" if reply["ended"] == "error" else reply["ended"]
            ended: Row = {"runs": [{"status": status, "message": ending(reply)}]}
            for name, rows in (reply.get("result") or ended).items():
                tables[name] += [each | point for each in ([rows] if name == "sellers" else rows)]
        plain = {name: m.formula for name, m in self.markets.items() if isinstance(m, Market)}
        facts = {"axes": self.axes, "draws": self.draws, "seed": self.seed, "formulas": plain}
        facts["caveats"] = [*CAVEATS, *([] if self.learner is None else [_CAVEAT_OF_LEARNERS])]
        if self.learner is not None:
            facts["constant_error"] = constant_error(self.data)
        return Runs("study", keys, {n: _joined(p, keys[n]) for n, p in tables.items()}, facts)

    def _points(self) -> list[Row]:
        points, axes = list[Row](), dict[str, Any](self.axes)
        if self._is_drawn:
            axes[_DRAWN] = range(self.draws)
        for name, market in self.markets.items():
            wanted = _parameters(market) | _parameters(self.learner)
            values = [each if axis in wanted else _missing(each) for axis, each in axes.items()]
            points += [{"market": name} | dict(zip(axes, x, strict=True)) for x in product(*values)]
        return points

    def __repr__(self) -> str:
        axes = "".join(f", {name} ({len(values)})" for name, values in self.axes.items())
        return f"Study({', '.join(self.markets)}{axes})"


def _missing(values: Sequence[Any]) -> list[Any]:
    has_text = any(isinstance(value, str) for value in values)
    return [0] if isinstance(values, range) else [""] if has_text else [np.nan]


def _parameters(function: Any, *, required: bool = False) -> set[str]:
    if hasattr(function, "fit") or not callable(function):
        return set()
    listed = inspect.signature(function).parameters.values()
    return {each.name for each in listed if not required or each.default is each.empty}


def constant_error(data: Any) -> float:
    """Compute the test error of the best constant: a mean squared error or a share of errors."""
    is_number = isinstance(data, RegressionData)
    counts = np.unique(data.y_test, return_counts=True)[1]
    return float(np.var(data.y_test) if is_number else 1 - counts.max(initial=0) / counts.sum())


def _made(entry: Any, point: Row, seed: int) -> Any:
    """Return a market or learner. A function is called with axis values and a generator."""
    if hasattr(entry, "fit"):
        return unfitted(entry)
    if not callable(entry):
        return entry
    arguments = {name: point[name] for name in _parameters(entry) & set(point) - {"market"}}
    if _DRAWN in _parameters(entry):
        stream = np.random.SeedSequence(seed, spawn_key=(_MARKETS, point.get(_DRAWN, 0)))
        arguments[_DRAWN] = np.random.default_rng(stream)
    return entry(**arguments)


def _definition(entry: Any, point: Row, seed: int) -> str:
    try:
        made = _made(entry, point, seed)
        return market_digest(made) if isinstance(made, Market) else repr(made)
    except Exception as error:  # the run records the same error
        return str(error)


def market_digest(market: Market) -> str:
    """Return a hash of a market's text and sellers, and of its objective at three points."""
    rng, costs = np.random.default_rng(0), np.asarray(market.sellers.virtual_costs, dtype=float)
    finite, etas = np.where(np.isfinite(costs), costs, 0.0), (0.5, 1.0, 7.0)
    points = rng.dirichlet(np.ones(costs.size), len(etas))
    pairs = zip(points, etas, strict=True)
    values = [f"{market.objective.value(*pair, finite):.9e}" for pair in pairs]
    return str(joblib.hash([repr(market), values, market.sellers.sensitivities, costs]))


def _joined(parts: list[Row], keys: Sequence[str]) -> pd.DataFrame:
    """Return a table of the rows of all runs. Seller ids become text unless all are integers."""
    if not parts:
        return pd.DataFrame(columns=list(keys), dtype="str")
    columns = [pd.DataFrame(part) for part in parts if "id" in keys]  # of columns
    table = pd.concat(columns, ignore_index=True) if columns else pd.DataFrame(parts)
    if "id" in table and table.id.dtype.kind not in "iu":
        table["id"] = table.id.map(str)
    return table[[*keys, *table.columns.difference(list(keys), sort=False)]]


def named_entries(argument: str, given: Any) -> dict[str, Any]:
    """Map distinct names to the entries of a mapping or list, or to a single entry."""
    if isinstance(given, Mapping):
        names, entries = list(given), list(given.values())
    else:
        single = isinstance(given, Market | str) or not checks.is_iterable(given)
        entries = [given] if single else list(given)
        names = [x if isinstance(x, str) else getattr(x, "__name__", "<lambda>") for x in entries]
        names = [f"market {k}" if x == "<lambda>" else x for k, x in enumerate(names, 1)]
    if not names or not all(isinstance(name, str) and name for name in names):
        raise errors.ParameterError(f"{argument} must be a mapping from names to markets or a list")
    for name in names:
        if names.count(name) > 1:
            raise errors.ParameterError(f"{argument}: two entries are named {name!r}; rename one")
    return dict(zip(names, entries, strict=True))


def _solve(
    entry: Any, point: Row, plan: Row, learner: Any, data: Any, *, ready: Callable[[float], None]
) -> dict[str, Any]:
    """Perform one run, and return its rows for each table. An error is recorded in a row."""
    ready(1.0)
    row: Row = {}
    try:
        market = _made(entry, point, plan["seed"])
        if not isinstance(market, Market):
            kind = f"{point['market']!r} returned a {type(market).__name__}"
            raise errors.ParameterError(f"markets: {kind}; return a Market")
        sellers, incentives = market.sellers, market.incentives
        row |= {"status": "solved", "message": "", "n_sellers": len(sellers)}
        row |= {"incentives": str(incentives), "reason": incentives.reason}
        allocation = allocate(market, solver=plan["solver"], gap=plan["gap"])
    except Exception as error:  # a user's function or term can raise any exception
        kinds = (words for kind, words in _FAILED.items() if isinstance(error, kind))
        return {"runs": [row | {"status": next(kinds, "error"), "message": _message(error)}]}
    wanted = ("all",) if market.form.exact is None else ("all", "exact")
    row |= {"payments_error": np.nan, "payments_method": ""}
    amounts = np.full(len(sellers), np.nan)
    if plan["payments"] in wanted and incentives == "by construction":
        try:
            estimate = estimate_payments(market, allocation, tol=plan["tol"])
            amounts, row["payments_method"] = estimate.amounts, estimate.method
            row["payments_error"] = float(estimate.errors.sum())
        except errors.ConvexMarketError as failure:
            row["payments_method"] = f"none: {failure}"
    try:
        expected = np.asarray(sellers.virtual_costs * market.privacy_cost(allocation.epsilon))
    except errors.ConvexMarketError:  # the payment terms have different privacy costs
        expected = np.full(len(sellers), np.nan)
    weights, parts = allocation.weights, market.objective.parts
    model = tuple(part for part in parts if part.term.reading(weights.size) == "none")
    costs = sellers.virtual_costs
    modelled = Objective(model).value(weights, allocation.eta, costs) if model else 0.0
    names = ("objective", "lower_bound", "gap", "eta", "method", "seconds")
    row |= {name: getattr(allocation, name) for name in names} | {
        "error": float(modelled),
        "spread": (spread := float(np.linalg.norm(weights))),
        "noise": 1.0 / allocation.eta,
        "n_effective": spread**-2,
        "n_bought": int(np.count_nonzero(weights * weights.size > ZERO_WEIGHT)),
        "epsilon_max": float(allocation.epsilon.max()),
        "solver": allocation.solver or "",
        "solves": len(allocation.solves),
        "expected_payments": float(expected.sum()),
        "payments": float(amounts.sum()),
    }
    groups = [""] * len(sellers) if sellers.groups is None else list(map(str, sellers.groups))
    table: Row = {"id": pd.Index(sellers.ids), "sensitivity": sellers.sensitivities}
    table |= {"virtual_cost": costs, "group": groups, "weight": weights}
    table |= {"epsilon": allocation.epsilon, "expected_payment": expected, "payment": amounts}
    columns = {name: np.asarray(v).tolist() for name, v in table.items() if v is not None}
    rows: dict[str, Any] = {"runs": [row], "sellers": columns}
    if plan["audits"] in wanted:
        rows["audits"] = [_audit(market, plan)]
    if learner is not None:
        rows["fits"], trained = _train(learner, data, point, plan, allocation.epsilon)
        row |= trained
    return rows


def _message(error: Exception) -> str:
    name = "" if isinstance(error, errors.ConvexMarketError) else f"{type(error).__name__}: "
    return f"{name}{error}"


def _audit(market: Market, plan: Row) -> Row:
    options = {"misreports": plan["misreports"], "max_sellers": plan["audit_sellers"]}
    try:
        summary = audit_incentives(market, **options).summary()
    except errors.ConvexMarketError as error:
        return {"message": str(error)}
    return {AUDITED.get(name, name): value for name, value in summary.items()} | {"message": ""}


def _train(learner: Any, data: Any, point: Row, plan: Row, epsilon: Floats) -> tuple[Any, Row]:
    """Train and test a model with each draw of the noise. If a fit fails, its errors are NaN."""
    fits, facts = [], dict[str, Any](guarantee_max=np.nan)
    parts = [part for part in ("validation", "test") if hasattr(data, f"X_{part}")]
    for draw in range(plan["noise_draws"]):
        fits.append({"noise_draw": draw} | {f"{part}_error": np.nan for part in ("test", *parts)})
        try:
            noise = Simulation(np.random.SeedSequence(plan["seed"], spawn_key=(_NOISE, draw)))
            model = _made(learner, point, plan["seed"]).fit(
                data.X_train, data.y_train, epsilon=epsilon, random_state=noise
            )
            facts["guarantee_max"] = float(np.max(model.guarantee_.epsilon))
            sold = PrivacyAccountant(epsilon, model.guarantee_.delta, composition="basic")
            sold.charge(model.guarantee_)  # an error if the guarantee exceeds the privacy sold
            for part in parts:
                labels = getattr(data, f"y_{part}")
                off = np.asarray(model.predict(getattr(data, f"X_{part}"))) - labels
                wrong = off**2 if isinstance(data, RegressionData) else off != 0
                fits[-1][f"{part}_error"] = float(np.mean(wrong))
        except Exception as error:  # a user's learner can raise any exception
            facts |= {"status": "training failed", "message": _message(error)}
    means = {name: float(np.mean([fit[name] for fit in fits])) for name in list(fits[0])[1:]}
    std = float(np.std([fit["test_error"] for fit in fits], ddof=1)) if len(fits) > 1 else np.nan
    return fits, means | {"test_error_std": std} | facts
