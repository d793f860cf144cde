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
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import check_instance, checked_numbers
from convexmarket.errors import AllocationError, ConvexMarketError, ParameterError
from convexmarket.online.plan import Plan, Terms, plan
from convexmarket.online.policy import ARGUMENTS, PLAN, OnlinePolicy
from convexmarket.priors import EmpiricalPrior, Prior, prior_from_dict

__all__ = ["AdaptivePolicy", "policy_from_dict"]

Floats = NDArray[np.float64]

#: Earlier reports below this share of their median are raised to it.
_FREE = 1e-6
#: Relative gap of new plans, far below the effect of chance.
_GAP = 1e-7
#: Sellers before the first new plan, the growth factor of that number (in the second half, of the
#: number of remaining sellers), and the number of reports that the first guess counts as.
_FIRST, _GROWTH, _GUESS = 10, 1.5, 20
_OPTIONS = ("replan", "learn", "trust_guess")


class AdaptivePolicy:
    """A policy that makes new plans from the history, after fixed numbers of sellers.

    Parameters
    ----------
    start : OnlinePolicy
        Terms of the first sellers. With ``learn``, its prior is the buyer's first guess, whose
        support contains all reports.
    replan : bool
        Whether a new plan covers the remaining sellers, given the sales so far, or all sellers.
    learn : bool
        Whether a new plan uses the earlier reports as the prior.
    trust_guess : bool
        With ``learn``, whether the first sellers are quoted by the guess. Otherwise nothing is
        bought before the first new plan: a wrong guess can spend everything on a few sellers.

    Attributes
    ----------
    stages : tuple of int
        Numbers of sellers after which a new plan is made: 10, and 1.5 times as many each time; in
        the second half, the numbers still to come shrink in the same way.
    opening : OnlinePolicy
        The terms of the first sellers.
    prior, expected_sellers, support, buyer
        Those of ``start``.

    Raises
    ------
    ParameterError
        If an argument is out of its range, or ``replan`` and ``learn`` are both False.

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
        trust_guess: bool = False,
    ) -> None:
        check_instance("start", start, OnlinePolicy)
        if start.rule != "expectation":
            raise ParameterError(
                f'the rule of start is "{start.rule}", which has no plan for the rest and none for '
                'a sample; give a policy with rule="expectation"'
            )
        for name, switch in (("replan", replan), ("learn", learn), ("trust_guess", trust_guess)):
            if not isinstance(switch, bool):
                raise ParameterError(f"{name} must be True or False, got {switch!r}")
        if not (replan or learn):
            raise ParameterError("replan and learn are both False; use start itself")
        self.start, self.replan, self.learn, self.trust_guess = start, replan, learn, trust_guess
        self.prior, self.expected_sellers = start.prior, start.expected_sellers
        self.support, self.buyer = start.support, start.buyer
        self.stages = _stages(start.expected_sellers)
        if not self.stages:
            raise ParameterError(
                f"{start.expected_sellers} sellers are expected, and the first new plan is made"
                f" after {_FIRST}, at most half of them; use start itself"
            )
        self.opening = start
        if learn and not trust_guess:
            nothing = Plan(Terms(start.support[0], 0.0), 0.0, np.inf, start.plan.lower_bound)
            self.opening = replace(start, plan=nothing)

    def replanned(self, reports: ArrayLike, sold: ArrayLike) -> OnlinePolicy:
        """Return the policy for the next sellers; the opening if no plan exists.

        ``reports`` are those of the sellers so far, and ``sold`` the guarantees that they sold (0
        if declined).

        Raises
        ------
        ParameterError
            If no seller is still to come.
        """
        reports, sold = checked_numbers("reports", reports), checked_numbers("sold", sold)
        remaining = self.expected_sellers - reports.size
        if remaining < 1:
            raise ParameterError(
                f"{reports.size} sellers came of {self.expected_sellers} expected; no seller is "
                "still to come"
            )
        buyer, prior = self.buyer, self._learnt(reports) if self.learn else self.prior
        history: dict[str, Any] = {}
        if self.replan and sold.any():
            total, squares = float(sold.sum()), float(sold @ sold)
            history = {"n": remaining, "total": total, "squares": squares}
        elif self.replan:  # a new market, with a cap of k over the sellers to come
            buyer = replace(buyer, m=remaining)
        try:
            made = plan(prior, buyer, **history, gap=_GAP)
        except AllocationError:
            return self.opening
        return replace(self.start, prior=prior, plan=made)

    def _learnt(self, reports: Floats) -> Prior:
        """Return the empirical prior of reports and first guess, reduced to its hull's corners."""
        levels = (np.arange(_GUESS) + 0.5) / _GUESS
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
    """Return the policy that ``to_dict`` of either kind describes, the same to the last bit.

    Parameters
    ----------
    described : mapping

    Returns
    -------
    OnlinePolicy or AdaptivePolicy

    Raises
    ------
    ParameterError
        If an entry is missing or not valid.

    Examples
    --------
    >>> import convexmarket as cm
    >>> policy = cm.OnlinePolicy(cm.Uniform(0, 1), 50, mu=1, sigma=1, gamma=0.1)
    >>> again = cm.online.policy_from_dict(policy.to_dict())
    >>> again.quote(0.1) == policy.quote(0.1)
    True
    """
    try:
        kind = described["policy"]
        if kind == "adaptive":
            start: Any = policy_from_dict(described["start"])
            return AdaptivePolicy(start, **{name: described[name] for name in _OPTIONS})
        if kind != "fixed":
            raise ValueError(f"policy is {kind!r}")
        numbers = [float(described["plan"][name]) for name in PLAN]
        made = Plan(Terms(*numbers[:3]), *numbers[3:])
        low, high = map(float, described["support"])
        given: dict[str, Any] = {name: described[name] for name in ARGUMENTS}
        prior = prior_from_dict(described["prior"])
    except (LookupError, TypeError, ValueError) as error:
        if isinstance(error, ConvexMarketError):
            raise
        raise ParameterError(
            f"this does not describe an online policy ({error!r}); give the result of to_dict"
        ) from None
    return OnlinePolicy(prior, **given, plan=made, support=(low, high))


def _stages(m: int) -> tuple[int, ...]:
    """Return sizes of the history that grow from the first, and mirror that towards the end."""
    sizes, size = [], float(_FIRST)
    while size <= m / 2:
        sizes.append(round(size))
        size = max(size * _GROWTH, size + 1.0)
    return tuple(sorted({*sizes, *(m - size for size in sizes)}))
