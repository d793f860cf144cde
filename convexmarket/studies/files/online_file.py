"""Problem files of kind "online", for markets in which sellers arrive one by one.

``convexmarket run`` simulates a market. The functions :func:`open_market` and :func:`close_market`
run a real market, whose state is stored in the database of :class:`convexmarket.OnlineMarket`.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import joblib
import numpy as np
import pandas as pd
from pydantic import Field

from convexmarket import errors
from convexmarket.learners import PrivateLogisticRegression
from convexmarket.online import AdaptivePolicy, OnlineOutcome, OnlinePolicy, audit_quotes, release
from convexmarket.online.online_market import MarketPlan, OnlineMarket
from convexmarket.online.outcome import planned
from convexmarket.privacy.accounting import Accounting
from convexmarket.studies.execution import Execution, ending
from convexmarket.studies.files import file_tables as tables
from convexmarket.studies.files import people
from convexmarket.studies.runs import Runs
from convexmarket.studies.study import AUDITED

Count = Annotated[int, Field(ge=1, le=1_000_000_000)]

_KEYS = {"offers": ("number",), "plans": ("plan",), "curves": ("plan", "sensitivity")}
_KEYS |= {"audits": ("plan",), "draws": ("draw",)}
_OFFERS = ["number", "id", "sensitivity", "epsilon", "payment", "status", "plan"]
_COUNTS = ("expected", "quoted", "accepted", "declined", "nothing bought")
_PLAN = ("cutoff", "eta", "objective", "lower_bound", "gap")
#: Number of reports at which the terms of a plan are tabulated, and the ratio between the range of
#: these reports and the range of the reports that sell.
_CURVE_POINTS, _BEYOND = 201, 1.6
_CAVEATS = (
    "The terms depend on reports and answers. Terms and payments have no privacy guarantee; "
    "the guarantees cover the coefficients only.",
    "The audit tests a grid of reports. It cannot check rows, and a seller who arrives under two "
    "names counts as two sellers.",
)
_LEARNT = (
    "The prior is learnt from reports while the market runs. The terms of a seller follow from "
    "earlier reports only, so truthful reports remain a best reply. The losses in this report are "
    "computed under the prior of the problem file."
)


class OwnSellers(people.OwnData):
    """Sellers in a CSV or Parquet file, identified by their ids.

    The rows of the sellers are read when the market closes. The file of public rows is read when
    the market opens. In a simulation, reports are read from the column ``report``, if declared.
    """

    id: tables.Column = "id"
    classes: people.Classes
    """Public labels of the two classes, as [negative, positive]."""
    public: dict[Literal["test"], tables.FileName] = Field({})  # type: ignore[assignment]
    """File of public rows for the test error of the model, such as { test = "public.csv" }."""


class BuyerTable(tables.Table):
    """Arguments of OnlinePolicy."""

    expected_sellers: Count
    """Expected number of sellers."""
    mu: tables.Positive
    """Weight of the spread."""
    sigma: tables.Positive
    """Weight of the noise."""
    gamma: tables.Positive
    """Weight of the payments."""
    cap: Annotated[float, Field(gt=1)] | None = None
    """Largest weight of a seller, in multiples of the average weight."""
    rule: Literal["expectation", "algorithm-3"] = "expectation"
    """Rule for computing the plan: "expectation", or "algorithm-3" for Algorithm 3 of the paper."""


class PlanTable(tables.Table):
    """Arguments of AdaptivePolicy, which changes the plan during the market."""

    replan: bool = False
    """Whether new plans take previous sales into account."""
    learn: bool = False
    """Whether new plans estimate the prior from earlier reports."""
    trust_guess: bool = False
    """Whether to buy from the sellers before the first new plan if the prior is estimated."""


class LearnerTable(tables.Table):
    """Arguments of the PrivateLogisticRegression that is trained when the market closes."""

    regularization: tables.Positive
    accounting: Accounting = "sharp"
    """Accounting rule of the guarantees."""
    calibration: Literal["total", "noise"] = "total"
    """With "total", the total guarantee of each seller is at most the guarantee sold."""


class SimulationTable(tables.Table):
    """Options of a simulation."""

    arrivals: Count | None = None
    """Number of sellers who arrive; by default, all sellers, but at most the expected number."""
    acceptance: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Probability that a seller accepts an offer."""
    draws: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of simulated markets. Intervals require two; the tables describe the first market."""


class OnlineFile(tables.ProblemFile):
    """Market in which sellers arrive one by one, and a model is trained when the market closes."""

    kind: Literal["online"]
    prior: tables.PriorTable
    buyer: BuyerTable
    """Expected number of sellers, and weights of the buyer's objective."""
    plan: PlanTable = PlanTable()
    data: Annotated[people.ForClassifiers | OwnSellers, Field(discriminator="source")]
    """Source of the rows. Without ids, the sellers are named row-0, row-1, ..."""
    learner: LearnerTable
    simulation: SimulationTable = SimulationTable()

    def classifier(self, regularization: float | None = None) -> PrivateLogisticRegression:
        """Construct the learner. If not None, ``regularization`` replaces the file's value."""
        options = self.learner.model_dump()
        options |= {} if regularization is None else {"regularization": regularization}
        return PrivateLogisticRegression(**options, data_norm=self.data.data_norm, tol=1e-9)

    def policy(self) -> OnlinePolicy | AdaptivePolicy:
        """Construct the policy that determines the quotes."""
        plan, start = self.plan.model_dump(), OnlinePolicy(self.prior, **self.buyer.model_dump())
        return AdaptivePolicy(start, **plan) if any(plan.values()) else start

    def market_rows(self) -> release.MarketRows:
        """Read the rows and the ids of their owners."""
        data, (rows, ids, reports) = self.data, self.data.load(self)
        options: dict[str, Any] = {}
        if isinstance(data, OwnSellers):
            options = {"classes": data.classes, "features": data.public_features}
        return release.MarketRows(
            ids or [f"row-{number}" for number in range(rows.y_train.size)],
            *(rows.X_train, rows.y_train, rows.X_test, rows.y_test),
            feature_names=rows.feature_names,
            data_norm=rows.data_norm,
            description=rows.description,
            reports=reports,
            **options,
        )

    def _performed(self, load: Any, options: dict[str, Any]) -> Runs:
        """Simulate the market. Except for ``draws``, the tables describe only the first draw."""
        rows, arrivals = self.market_rows(), self.simulation.arrivals
        if arrivals is not None and arrivals > len(rows.ids):
            most = f"give at most {len(rows.ids)}, the number of sellers in the data"
            raise errors.ProblemFileError(f"simulation.arrivals is {arrivals}; {most}")
        arrays = rows.ids, rows.X, rows.y, rows.reports, rows.X_test, rows.y_test
        description = self.model_dump_json(exclude={"run": {"jobs"}, "simulation": {"draws"}})
        given = joblib.hash([description, version("convexmarket"), *arrays])
        calls = {f"{given}-{k}": (self, rows, k) for k in range(self.simulation.draws)}
        replies = list(Execution(**options).run(_simulated, calls, "markets").values())
        for failed in (reply for reply in replies if "result" not in reply):
            raise errors.SolverError(f"a simulated market: {ending(failed)}")
        results = [reply["result"] for reply in replies]
        frames = {name: pd.DataFrame(table) for name, table in results[0]["tables"].items()}
        frames["draws"] = pd.DataFrame([result["row"] for result in results])
        return Runs("online", _KEYS, frames, results[0]["facts"])

    def result(self, market: OnlineMarket, released: str, turned_away: int | None = None) -> Runs:
        """Return the tables and facts of a closed market. Only simulations set ``turned_away``."""
        model, start, counts = json.loads(released), market.policy.start, market.counts()
        simulated, guarantees = turned_away is not None, model["guarantees"]
        offers: Any = market.offers()[_OFFERS]
        reports = offers.sensitivity.to_numpy(float)
        offers.insert(3, "virtual_cost", self.prior.ironed_virtual_cost(reports))
        offers.insert(6, "surplus", offers.payment - reports * offers.epsilon)
        used = offers.epsilon.where(offers.id.isin(list(guarantees)), 0.0)
        offers["weight"] = used / used.sum()
        offers["guarantee"] = offers.id.map(guarantees).fillna(0.0)
        sold = offers[["epsilon", "payment"]].where(offers.status == "accepted", 0.0)
        epsilon, paid = sold.to_numpy().T
        outcome = OnlineOutcome(reports, epsilon, paid, turned_away or 0, start.buyer)
        caveats = [*_CAVEATS, *([_LEARNT] if self.plan.learn else [])]
        if simulated:
            is_drawn = getattr(self.data, "report", None) is None
            origin = "drawn from the prior" if is_drawn else "those of the file"
            caveats.insert(0, f"Simulated: reports are {origin}; arrivals and answers are drawn.")
        facts = {
            "planned": planned(start),
            "realised": {
                "sellers": float(len(offers)),
                "bought": float(outcome.n_bought),
                "eta": outcome.eta,
                "payments": float(paid.sum()),
                "loss": outcome.loss(self.prior),
                "paid_loss": outcome.paid_loss(),
                "largest_epsilon": float(epsilon.max()),
                "largest_weight": float(outcome.weights.max()),
            },
            "counts": {name: counts[name] for name in _COUNTS} | {"turned away": turned_away or 0},
            "model": model,
            "simulated": simulated,
            "seed": self.run.seed if simulated else None,
            "caveats": caveats,
        }
        frames = {"offers": offers, **_terms(market.plans())}
        return Runs("online", {name: _KEYS[name] for name in frames}, frames, facts)


def _simulated(
    problem: OnlineFile, rows: release.MarketRows, draw: int, *, ready: Callable[[float], None]
) -> dict[str, Any]:
    """Simulate one market. Return a row of totals and, for the first draw, tables and facts."""
    ready(1.0)
    policy, learner, table = problem.policy(), problem.classifier(), problem.simulation
    branch = [draw] if draw else []
    streams = [problem.run.stream(purpose, *branch) for purpose in range(4)]
    arrival, cost, answer = map(np.random.default_rng, streams[:3])
    owners, expected = len(rows.ids), policy.expected_sellers
    number = min(owners, expected) if table.arrivals is None else table.arrivals
    order, quoted = arrival.permutation(owners)[:number], min(number, expected)
    reports = problem.prior.sample(number, cost) if rows.reports is None else rows.reports[order]
    accepts = answer.random(quoted) < table.acceptance
    with (
        tempfile.TemporaryDirectory(prefix="online-market-") as folder,
        OnlineMarket.create(folder, policy) as market,
    ):
        for place in range(quoted):
            owner = rows.ids[order[place]]
            if market.quote(owner, float(reports[place])).epsilon > 0:
                (market.accept if accepts[place] else market.decline)(owner)
        released = market.close(
            partial(release.release_model, learner, rows, seed=streams[3]),
            guarantee=partial(release.model_guarantee, learner),
        )
        runs = problem.result(market, released, number - quoted)
    tested = runs.facts["model"]["test"] or {}
    row = {"draw": draw, "planned_eta": runs.facts["planned"]["eta"], **runs.facts["realised"]}
    row |= {name: tested.get(name, np.nan) for name in ("error", "error_of_one_class")}
    stored = {} if draw else {name: table.to_dict("list") for name, table in runs.tables.items()}
    return {"row": row, "tables": stored, "facts": {} if draw else dict(runs.facts)}


def _terms(plans: Sequence[MarketPlan]) -> dict[str, pd.DataFrame]:
    first = plans[0].policy
    low, high = first.support
    ends = [made.policy.highest_sensitivity for made in plans]
    last = low + _BEYOND * (max([low, *filter(np.isfinite, ends)]) - low)
    if last == low:
        last = float(first.prior.quantile(0.5))
    reports = np.linspace(low, min(last, high), _CURVE_POINTS)
    rows, audits, curves = [], [], []
    for (number, after, policy), end in zip(plans, ends, strict=True):
        row = {"plan": number, "after": after, "highest_sensitivity": end}
        row |= {name: getattr(policy.plan, name) for name in _PLAN}
        rows.append(row | {"payment_error": policy.payment_error})
        audits.append({"plan": number, **audit_quotes(policy).summary()})
        terms = {"sensitivity": reports, **policy.quote(reports)._asdict()}
        curves.append(pd.DataFrame(terms).assign(plan=number))
    return {
        "plans": pd.DataFrame(rows),
        "curves": pd.concat(curves, ignore_index=True),
        "audits": pd.DataFrame(audits).rename(columns=AUDITED),
    }


def open_market(problem: OnlineFile, folder: str | Path) -> OnlineMarket:
    """Check the files of a problem, and create its market in a folder."""
    policy, source = problem.policy(), problem.source
    if source is None:
        raise errors.ProblemFileError("the problem has no file; give the result of load_file")
    if isinstance(problem.data, OwnSellers):
        people.read_public(problem)
        if problem.place(problem.data.file).exists():
            people.read_cells(problem, problem.data.file, [problem.data.id])
    try:
        path = os.path.relpath(source.path, folder)  # a relative path
    except ValueError:  # on another drive
        path = os.path.abspath(source.path)
    described = json.dumps(asdict(source) | {"path": path}, ensure_ascii=False)
    return OnlineMarket.create(folder, policy, described)


def problem_of(market: OnlineMarket) -> OnlineFile:
    """Load the problem of a market, or raise a DataError if the market has no problem file."""
    try:
        source = tables.Source(**json.loads(market.problem))
        problem = OnlineFile.model_validate(source.table)
    except (ValueError, TypeError):
        raise errors.DataError(
            f"the market in {market.folder} was made without a problem file, so its rows and its "
            "learner are unknown; close it with OnlineMarket.close"
        ) from None
    path = os.path.normpath(os.path.join(market.folder, source.path))
    problem._source = replace(source, path=path)
    return problem


def close_market(
    market: OnlineMarket,
    *,
    lapse: bool = False,
    leave_out: Sequence[str] = (),
    regularization: float | None = None,
) -> Runs:
    """Train the model once on the sold rows, and close the market permanently.

    If the market is already closed, the stored model is loaded. If ``lapse`` is true, unanswered
    offers are declined. The sellers in ``leave_out`` are paid, but their rows are not used.
    ``regularization`` replaces the value of the file and must be chosen without the rows.
    """
    problem, released = problem_of(market), market.released
    if released == release.WITHOUT_MODEL:
        cause = f"the market in {market.folder} is closed and has no model"
        raise errors.MarketClosedError(f"{cause}; open another market")
    if released is not None and regularization is not None:
        raise errors.ParameterError(
            f"regularization is {regularization:g}, but the market in {market.folder} was closed "
            "with a model; leave regularization out to load that model"
        )
    learner = problem.classifier(regularization)
    if not market.is_closed:  # errors are raised before quoting ends
        release.check_closing(market, learner, problem.market_rows, leave_out)

    def train(accepted: pd.DataFrame) -> str:
        return release.release_model(learner, problem.market_rows(), accepted, leave_out)

    guarantee = partial(release.model_guarantee, learner, leave_out=leave_out)
    return problem.result(market, market.close(train, lapse, guarantee))
