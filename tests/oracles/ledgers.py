"""Check the accounts after 60 sequences of sales and releases.

A spec contains the kind of account (``ledger`` on disk, ``memory`` or ``open``), the composition
rule and the steps. A step sells privacy or charges a release. The answer contains the admitted
releases and the spent and remaining budget of each row after the last step.
"""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import convexmarket as cm
from convexmarket import privacy
from convexmarket.errors import BudgetExceededError, ConvexMarketError

Spec = dict[str, Any]


def answer(spec: Spec) -> dict[str, Any]:
    """Perform the steps of a spec. Return the admitted releases and the budgets of the rows."""
    kinds = {"ledger": _ledger, "memory": _memory, "open": _open}
    return kinds[spec["account"]](spec)


def _guarantee(step: Spec) -> cm.Guarantee:
    epsilon = np.array(step["epsilon"], dtype=float)
    return cm.Guarantee(epsilon, step["delta"], step["name"] or "a release", "exact", ())


def _memory(spec: Spec) -> dict[str, Any]:
    terms = {"delta": spec["delta"], "composition": spec["composition"], "ids": spec["ids"]}
    account = cm.PrivacyAccountant(spec["budget"], **terms)
    outcomes = []
    for step in spec["steps"]:
        outcomes.append(_outcome(account.charge, _guarantee(step), step["rows"]))
        outcomes.append(account.remaining)
    return {
        "outcomes": outcomes,
        "spent": account.spent,
        "spent delta": account.spent_delta,
        "remaining": account.remaining,
        "releases": len(account.releases),
    }


def _ledger(spec: Spec) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sold.sqlite")
        with cm.Ledger.create(file, spec["composition"], spec["delta"]) as ledger:
            outcomes: list[Any] = []
            for step in spec["steps"]:
                if step["do"] == "sell":
                    sold = {name: step[name] for name in ("ids", "epsilon", "prices")}
                    rest = {"release": step["name"], "source": step["source"]}
                    outcomes.append(_outcome(ledger.sell, **sold, **rest))
                    continue
                account = ledger.account(step["ids"], release=step["name"])
                action = account.check if step["do"] == "check" else account.charge
                outcomes.append(_outcome(action, _guarantee(step), step["rows"]))
            balance, charges = ledger.balance(), ledger.charges()
            all_rows = ledger.account(balance["id"].tolist(), release=None)
            return {
                "outcomes": outcomes,
                "balance": {name: balance[name].to_numpy().tolist() for name in balance},
                "remaining": all_rows.remaining,
                "budget": all_rows.budget,
                "charges": [charges["id"].tolist(), charges["epsilon"].to_numpy()],
                "releases": ledger.releases()["sellers"].to_numpy(),
            }


def _open(spec: Spec) -> dict[str, Any]:
    """Open nested accounts, and charge them by fits that use the full epsilon of each row."""
    budgets = [
        pd.Series(budget) if isinstance(budget, dict) else budget for budget in spec["budgets"]
    ]
    accounts = [privacy.account(budget, spec["delta"]) for budget in budgets]
    outcomes = []
    with contextlib.ExitStack() as stack:
        for account in accounts:
            stack.enter_context(account)
        for step in spec["steps"]:
            ids = step["ids"]
            cube = np.outer(np.arange(1.0, len(step["epsilon"]) + 1.0), [0.31, 0.47]) % 1.0
            rows = pd.DataFrame(cube, index=ids, columns=["a", "b"])
            outcomes.append(_outcome(_fit, rows, np.array(step["epsilon"])))
    return {
        "outcomes": outcomes,
        "spent": [[account.spent.index.tolist(), account.spent.to_numpy()] for account in accounts],
        "spent unnamed": [account.spent_unnamed for account in accounts],
        "releases": [len(account.releases) for account in accounts],
    }


def _fit(rows: pd.DataFrame, epsilon: np.ndarray) -> None:
    learner = cm.PersonalizedRidge(
        1.0,
        perturbation="output",
        fit_intercept=False,
        max_norm=None,
        weighting="granted",
        sensitivity="tight",
        feature_range=(0.0, 1.0),
        target_range=(-1.0, 1.0),
        rounding=None,
    )
    labels = rows["a"].to_numpy() / 2.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cm.PrivacyLeakWarning)
        learner.fit(rows, labels, epsilon=epsilon)


def _outcome(action: Any, *arguments: Any, **named: Any) -> Any:
    """Perform a step. Return a number, "done", "refused", or the name of another error."""
    try:
        result = action(*arguments, **named)
    except BudgetExceededError:
        return "refused"
    except ConvexMarketError as error:
        return type(error).__name__
    return result if isinstance(result, int) else "done"
