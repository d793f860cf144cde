"""Policies with new plans: for the sellers still to come, and with priors learnt from reports.

New plans use the history, never the report that is quoted, and are made at sizes of the history
that are fixed in advance. So no seller gains by misreporting in its own quote. Sellers who choose
their time of arrival, or lie for later sellers, are not covered.

The learnt prior is the sample of the reports so far and of some quantiles of the first guess. Its
ironed expected-cost curve is the convex hull of the sample's (Grenander's estimator in quantile
space), which needs no bandwidth, and with which guarantees never rise with the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convexmarket.checks import as_float, check_count, check_instance
from convexmarket.errors import AllocationError, ParameterError
from convexmarket.online.plan import Buyer, Plan, Terms, plan
from convexmarket.online.policy import History, OnlinePolicy
from convexmarket.priors import EmpiricalPrior, Prior

__all__ = ["AdaptivePolicy", "policy_from_dict"]

Floats = NDArray[np.float64]

#: Earlier reports below this share of their median count as that much.
_FREE = 1e-6
#: Relative gap of new plans, far below the effect of chance.
_GAP = 1e-7
_OPTIONS = ("replan", "learn", "first", "growth", "guess_size", "trust_guess")


class AdaptivePolicy:
    """A policy with new plans after fixed numbers of sellers, from the history.

    Parameters
    ----------
    start : OnlinePolicy
        Terms of the first sellers. With ``learn``, its prior is the buyer's first guess, whose
        support contains all reports.
    replan : bool
        Whether a new plan is for the sellers still to come, after the sales so far, or for all.
    learn : bool
        Whether a new plan takes the earlier reports for the prior.
    first : int
        Number of sellers before the first new plan, at least 1.
    growth : float
        Factor, > 1, between the numbers of sellers at new plans; in the second half, between the
        numbers of sellers still to come.
    guess_size : int
        With ``learn``, the number of reports that the first guess stands for, at least 1.
    trust_guess : bool
        With ``learn``, whether the first sellers are quoted by the guess. Otherwise nothing is
        bought before the first new plan: a wrong guess can spend everything on a few sellers.

    Attributes
    ----------
    stages : tuple of int
        Numbers of sellers after which a new plan is made.
    opening : OnlinePolicy
        The terms of the first sellers.

    Raises
    ------
    ParameterError
        If an argument is out of its range, or ``replan`` and ``learn`` are both False.

    Notes
    -----
    problems/papers/online.py measures the cost of not knowing the prior.

    Examples
    --------
    >>> import convexmarket as cm
    >>> guess = cm.OnlinePolicy(cm.Uniform(0, 8), 1000, mu=1, sigma=1, gamma=1)
    >>> policy = cm.online.AdaptivePolicy(guess, learn=True)
    >>> policy.stages[:4], policy.stages[-3:]
    ((10, 15, 22, 34), (978, 985, 990))
    """

    def __init__(
        self,
        start: OnlinePolicy,
        *,
        replan: bool = True,
        learn: bool = False,
        first: int = 10,
        growth: float = 1.5,
        guess_size: int = 20,
        trust_guess: bool = False,
    ) -> None:
        check_instance("start", start, OnlinePolicy)
        if start.rule != "expectation":
            raise ParameterError(
                f'the rule of start is "{start.rule}", which has no plan for the rest and none for '
                'a sample; give a policy with rule="expectation"'
            )
        switches = (("replan", replan), ("learn", learn), ("trust_guess", trust_guess))
        for name, switch in switches:
            if not isinstance(switch, bool):
                raise ParameterError(f"{name} must be True or False, got {switch!r}")
        if not (replan or learn):
            raise ParameterError("replan and learn are both False; use start itself")
        check_count("first", first)
        check_count("guess_size", guess_size)
        if not 1 < as_float(growth) < np.inf:
            raise ParameterError(f"growth must be a finite number > 1, got {growth!r}")
        self.start, self.replan, self.learn = start, replan, learn
        self.first, self.growth, self.guess_size = int(first), float(growth), int(guess_size)
        self.trust_guess = trust_guess
        self.stages = _stages(start.expected_sellers, self.first, self.growth)
        if not self.stages:
            raise ParameterError(
                f"first is {first}, so that no new plan would be made for the "
                f"{start.expected_sellers} sellers expected; give at most half of them"
            )
        self.opening = start
        if learn and not trust_guess:
            nothing = Plan(Terms(start.support[0], 0.0), 0.0, np.inf)
            self.opening = start.with_plan(nothing, start.prior)

    @property
    def prior(self) -> Prior:
        """The prior of the first plan."""
        return self.start.prior

    @property
    def expected_sellers(self) -> int:
        """Sellers expected in all."""
        return self.start.expected_sellers

    @property
    def support(self) -> tuple[float, float]:
        """Where reports may lie."""
        return self.start.support

    @property
    def buyer(self) -> Buyer:
        """The buyer's objective in numbers."""
        return self.start.buyer

    def replanned(self, history: History) -> OnlinePolicy:
        """Return the policy for the sellers after a history; the opening if no plan exists.

        Raises
        ------
        ParameterError
            If no seller is still to come.
        """
        check_instance("history", history, History)
        came = np.asarray(history.sensitivities).size
        remaining = self.expected_sellers - came
        if remaining < 1:
            raise ParameterError(
                f"history has {came} sellers of {self.expected_sellers} expected; no seller is "
                "still to come"
            )
        buyer = self.start.buyer
        prior = self._learnt(np.asarray(history.sensitivities)) if self.learn else self.prior
        sold = np.asarray(history.epsilon)
        total, squares = float(sold.sum()), float(sold @ sold)
        try:
            if not self.replan:
                made = plan(prior, buyer, gap=_GAP)
            elif total > 0:
                made = plan(prior, buyer, remaining, total, squares, _GAP)
            else:  # a market of its own: its cap is k over those to come
                made = plan(prior, replace(buyer, m=remaining), gap=_GAP)
        except AllocationError:
            return self.opening
        return self.start.with_plan(made, prior)

    def _learnt(self, reports: Floats) -> Prior:
        """Return the sample of the reports and of the first guess, by the corners of its hull."""
        levels = (np.arange(self.guess_size) + 0.5) / self.guess_size
        guessed = np.asarray(self.prior.quantile(levels))
        known = np.concatenate((reports, guessed))
        # A single report next to 0 would make the buyer wait for others that cheap.
        sample = EmpiricalPrior(np.maximum(known, _FREE * np.median(known)))
        low, high = sample.support
        # Between corners the ironed virtual cost is constant; only they are needed.
        corners = np.unique(np.concatenate(([low], sample.breakpoints, [high])))
        counts = np.diff(np.rint(sample.cdf(corners) * (reports.size + guessed.size)), prepend=0.0)
        return EmpiricalPrior(corners, counts)

    def to_dict(self) -> dict[str, Any]:
        """Return the policy, ready for JSON; see :func:`policy_from_dict`."""
        options = {name: getattr(self, name) for name in _OPTIONS}
        return {"policy": "adaptive", "start": self.start.to_dict(), **options}

    def __repr__(self) -> str:
        return (
            f"AdaptivePolicy({self.start!r}, replan={self.replan}, learn={self.learn}, "
            f"{len(self.stages)} new plans)"
        )


def policy_from_dict(described: Mapping[str, Any]) -> OnlinePolicy | AdaptivePolicy:
    """Return the policy that ``to_dict`` of either kind describes.

    Parameters
    ----------
    described : mapping
        The result of ``to_dict``.

    Returns
    -------
    OnlinePolicy or AdaptivePolicy

    Raises
    ------
    ParameterError
        If it does not describe one.

    Examples
    --------
    >>> import convexmarket as cm
    >>> policy = cm.OnlinePolicy(cm.Uniform(0, 1), 50, mu=1, sigma=1, gamma=0.1)
    >>> again = cm.online.policy_from_dict(policy.to_dict())
    >>> again.quote(0.1) == policy.quote(0.1)
    True
    """
    kind = described.get("policy") if isinstance(described, Mapping) else None
    if kind == "fixed":
        return OnlinePolicy.from_dict(described)
    if kind != "adaptive":
        raise ParameterError(
            f"this describes no online policy: its key 'policy' is {kind!r}, not 'fixed' or "
            "'adaptive'; give what to_dict returned"
        )
    options = {name: value for name, value in described.items() if name not in ("policy", "start")}
    try:
        return AdaptivePolicy(OnlinePolicy.from_dict(described["start"]), **options)
    except (KeyError, TypeError) as error:
        raise ParameterError(
            f"this does not describe an online policy ({error!r}); give what to_dict returned"
        ) from None


def _stages(m: int, first: int, growth: float) -> tuple[int, ...]:
    """Return sizes of the history that grow from the first, and mirror that towards the end."""
    sizes: list[int] = []
    size = float(first)
    while size <= m / 2:
        sizes.append(round(size))
        size = max(size * growth, size + 1.0)
    return tuple(sorted({*sizes, *(m - size for size in sizes)}))
