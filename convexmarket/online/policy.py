"""Compute quotes from the prior, the report of a seller and the history (A, section V).

An adaptive policy computes new plans from the sales so far, or from a prior learnt from the
reports. A new plan depends on the history but not on the report that is quoted, and the times of
new plans are fixed in advance. Therefore, a seller cannot improve its quote by misreporting. This
result excludes sellers who choose their time of arrival, or misreport to benefit later sellers.

The learnt prior is the empirical distribution of the reports so far and some quantiles of the
initial prior. Its ironed curve of expected costs is the convex hull of the empirical curve
(Grenander's estimator in quantile space). The estimator needs no bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import (
    as_float,
    check_choice,
    check_count,
    check_instance,
    check_positive,
    checked_numbers,
)
from convexmarket.errors import (
    AllocationError,
    ConvexMarketError,
    NotSupportedError,
    ParameterError,
    PriorError,
)
from convexmarket.online.curves import Curve
from convexmarket.online.plan import Buyer, Plan, Terms, algorithm_3, plan
from convexmarket.priors import EmpiricalPrior, Prior, prior_from_dict
from convexmarket.priors.prior import as_prior

Floats = NDArray[np.float64]
Rule: TypeAlias = Literal["expectation", "algorithm-3"]

#: Keys of :meth:`OnlinePolicy.to_dict` for the plan, and for all arguments except the prior.
_PLAN = ("price", "scale", "largest", "eta", "objective", "lower_bound")
_ARGUMENTS = ("expected_sellers", "mu", "sigma", "gamma", "cap", "rule")
#: Levels of the quantiles near zero at which Assumption IV.3 is checked.
_NEXT_TO_ZERO = 0.5 ** np.arange(4.0, 41.0, 4.0)
#: Before a prior is learnt, reports below this fraction of the median report are raised to it.
_FREE = 1e-6
#: Relative gap of new plans, which is much smaller than sampling errors.
_GAP = 1e-7
#: Number of sellers before the first new plan, and factor by which this number grows between plans.
#: The initial prior is represented by ``_GUESS`` quantiles.
_FIRST, _GROWTH, _GUESS = 10, 1.5, 20
_OPTIONS = ("replan", "learn", "trust_guess")


class Quote(NamedTuple):
    """Guarantees (0 if nothing is bought) and payments (A, Eq. 8), shaped like the reports.

    Examples
    --------
    >>> import convexmarket as cm
    >>> policy = cm.OnlinePolicy(cm.Uniform(0, 1), 10, mu=1, sigma=1, gamma=1)
    >>> quote = policy.quote(0.2)
    >>> quote.epsilon > 0, quote.payment >= 0.2 * quote.epsilon
    (True, True)
    """

    epsilon: Any
    payment: Any


@dataclass(eq=False, repr=False)
class OnlinePolicy:
    """Policy for sellers who arrive one by one (A, Algorithm 3, or its generalisation).

    Parameters
    ----------
    prior : Prior or frozen scipy.stats distribution
    expected_sellers : int
        Number m of sellers for which the plan is computed.
    mu, sigma, gamma : float
        Weights of spread, noise and payments in the buyer's objective, all > 0 (A, Eq. 11).
    cap : float, optional
        Factor k > 1. A seller sells at most k/m of the expected total.
    rule : {"expectation", "algorithm-3"}
        "expectation" is the solution of Eq. (14) of A with expectations instead of sums, for any
        prior. "algorithm-3" is A's closed form, which approximates "expectation" for many sellers.
        The closed form does not support a cap, and requires A's Assumption IV.3 on the prior.
    plan, support : optional
        Stored plan and stored range of reports. By default, they are computed from the prior.

    Attributes
    ----------
    payment_error : float
        Estimate of the largest quadrature error of a payment, 0 if no quadrature is needed.
    highest_sensitivity : float
        Largest report at which privacy is bought, or NaN if nothing is bought.
    stages : tuple of int
        Numbers of sellers after which a new plan is computed. The tuple is empty for this class.

    Raises
    ------
    ParameterError, NotSupportedError
        If an argument is out of range, or a cap is given for "algorithm-3".
    PriorError, UnattainedOptimumError
        If the prior violates Assumption IV.3 for "algorithm-3", or no optimum exists.

    Notes
    -----
    Guarantees do not increase with the report, and payments follow Eq. (8). Therefore, truthful
    reporting is a dominant strategy, and a truthful seller does not lose by accepting.

    If a fraction xi of the expected sellers arrives, total privacy and total payments are xi times
    the planned amounts, and the loss is larger than planned (A, Theorem V.1). :class:`OnlineMarket`
    and :func:`run_online` turn away sellers who arrive after the expected number.

    Examples
    --------
    >>> import convexmarket as cm
    >>> policy = cm.OnlinePolicy(cm.Uniform(1, 5), 100, mu=1, sigma=1, gamma=1)
    >>> epsilon, payment = policy.quote(1.1)
    >>> round(epsilon, 4), round(payment, 4)
    (0.1523, 0.1852)
    >>> policy.quote([1.1, 1.5, 4.0]).epsilon.round(4)
    array([0.1523, 0.    , 0.    ])
    """

    stages: ClassVar[tuple[int, ...]] = ()

    prior: Any
    expected_sellers: int
    mu: float
    sigma: float
    gamma: float
    cap: float | None = None
    rule: Rule = "expectation"
    plan: Plan = None  # type: ignore[assignment]
    support: tuple[float, float] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.prior = as_prior(self.prior, error=ParameterError)
        self.expected_sellers = check_count("expected_sellers", self.expected_sellers)
        for name in ("mu", "sigma", "gamma"):
            setattr(self, name, check_positive(name, getattr(self, name)))
        if self.cap is not None:
            if not 1 < as_float(self.cap) < np.inf:
                raise ParameterError(
                    "cap, the ratio of the largest weight to the average, must be a number > 1, "
                    f"got {self.cap!r}"
                )
            self.cap = float(self.cap)
        check_choice("rule", self.rule, Rule)
        if self.rule == "algorithm-3" and self.cap is not None:
            raise NotSupportedError(
                f"cap is {self.cap:g}, but Algorithm 3 does not support a cap; give "
                'rule="expectation", or omit cap'
            )
        if self.plan is None:
            general = self.rule == "expectation"
            self.plan = (plan if general else _algorithm_3)(self.prior, self.buyer)
        self.support = self.support or self.prior.support
        self._curve = Curve(self.prior, self.plan.terms, self.support[0])
        self.payment_error, self.highest_sensitivity = self._curve.error, self._curve.last

    @property
    def buyer(self) -> Buyer:
        """The weights of the buyer's objective, the number of expected sellers and the cap."""
        cap = np.inf if self.cap is None else self.cap
        return Buyer(self.mu, self.sigma, self.gamma, self.expected_sellers, cap)

    def quote(self, sensitivity: ArrayLike) -> Quote:
        """Compute the quote for a report in the support, or for an array of reports.

        Parameters
        ----------
        sensitivity : float or array_like
            Reported cost per unit of privacy lost.

        Raises
        ------
        PriorError
            If a report is outside the support.
        """
        low, high = self.support
        reports = checked_numbers("sensitivity", sensitivity)
        outside = ~((reports >= low) & (reports <= high) & np.isfinite(reports))
        if outside.any():
            raise PriorError(
                f"{outside.sum()} of {reports.size} sensitivities are not in the support "
                f"[{low:g}, {high:g}] of {self.prior!r}; the first is {reports[outside][0]}. "
                "Correct the report, or declare a prior that covers it"
            )
        sold, rent = self._curve.sell(reports)
        paid = reports * sold + rent
        return Quote(float(sold), float(paid)) if reports.ndim == 0 else Quote(sold, paid)

    @property
    def start(self) -> OnlinePolicy:
        """The policy for the first sellers."""
        return self

    opening = start

    def replanned(self, reports: ArrayLike, sold: ArrayLike) -> OnlinePolicy:
        """Return this policy, because the plan does not change."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Convert the policy and its plan to a dictionary; see :func:`policy_from_dict`."""
        plan = vars(self.plan.terms) | vars(self.plan)
        return {
            "policy": "fixed",
            "prior": self.prior.to_dict(),
            **{name: getattr(self, name) for name in _ARGUMENTS},
            "support": [_written(bound) for bound in self.support],
            "plan": {name: _written(plan[name]) for name in _PLAN},
        }

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={getattr(self, name)!r}" for name in _ARGUMENTS)
        return f"OnlinePolicy({self.prior!r}, {given}: eta {self.plan.eta:.6g})"


@dataclass(eq=False, repr=False)
class AdaptivePolicy:
    """A policy that computes new plans from the history after fixed numbers of sellers.

    Parameters
    ----------
    start : OnlinePolicy
        Policy for the first sellers. With ``learn``, this policy's prior is the initial prior,
        whose support must contain all reports.
    replan : bool
        Whether new plans are for the remaining sellers given the sales so far, or for all sellers.
    learn : bool
        Whether a new plan uses a prior learnt from the earlier reports.
    trust_guess : bool
        With ``learn``, whether the first sellers are quoted with the initial prior. If False,
        nothing is bought before the first new plan, because a wrong prior can cause high costs.

    Attributes
    ----------
    stages : tuple of int
        Numbers of sellers after which a new plan is computed. In the first half, they increase from
        10 by a factor of 1.5. In the second half, they are m minus the numbers of the first half.
    opening : OnlinePolicy
        The policy for the first sellers.
    prior, expected_sellers, support, buyer
        Attributes of ``start``.

    Raises
    ------
    ParameterError
        If an argument is out of range, or ``replan`` and ``learn`` are both False.

    Examples
    --------
    >>> import convexmarket as cm
    >>> guess = cm.OnlinePolicy(cm.Uniform(0, 8), 1000, mu=1, sigma=1, gamma=1)
    >>> policy = cm.online.AdaptivePolicy(guess, learn=True)
    >>> policy.stages[:4], policy.stages[-3:]
    ((10, 15, 22, 34), (978, 985, 990))
    """

    start: OnlinePolicy
    _: KW_ONLY
    replan: bool = True
    learn: bool = False
    trust_guess: bool = False

    def __post_init__(self) -> None:
        start = self.start
        check_instance("start", start, OnlinePolicy)
        if start.rule != "expectation":
            raise ParameterError(
                f'the rule of start is "{start.rule}", which has no plan for later sellers or for '
                'a sample; give a policy with rule="expectation"'
            )
        for name in _OPTIONS:
            check_instance(name, getattr(self, name), bool, "True or False")
        if not (self.replan or self.learn):
            raise ParameterError("replan and learn are both False; set one to True, or use start")
        self.prior, self.expected_sellers = start.prior, start.expected_sellers
        self.support, self.buyer = start.support, start.buyer
        self.stages = _stages(start.expected_sellers)
        if not self.stages:
            raise ParameterError(
                f"the first new plan follows {_FIRST} sellers, more than half of the "
                f"{start.expected_sellers} expected sellers; use the policy start instead"
            )
        self.opening = start
        if self.learn and not self.trust_guess:
            nothing = Plan(Terms(start.support[0], 0.0), 0.0, np.inf, start.plan.lower_bound)
            self.opening = replace(start, plan=nothing)

    def replanned(self, reports: ArrayLike, sold: ArrayLike) -> OnlinePolicy:
        """Compute the policy for the next sellers, or return ``opening`` if no plan exists.

        Parameters
        ----------
        reports, sold : array_like, shape (n,)
            Reports of the sellers so far, and the guarantees that they sold (0 if declined).

        Raises
        ------
        ParameterError
            If no seller remains.
        """
        reports, sold = checked_numbers("reports", reports), checked_numbers("sold", sold)
        remaining = self.expected_sellers - reports.size
        if remaining < 1:
            raise ParameterError(
                f"{reports.size} of {self.expected_sellers} expected sellers arrived, so no "
                "seller remains"
            )
        buyer, prior = self.buyer, self._learnt(reports) if self.learn else self.prior
        history: dict[str, Any] = {}
        if self.replan and sold.any():
            total, squares = float(sold.sum()), float(sold @ sold)
            history = {"n": remaining, "total": total, "squares": squares}
        elif self.replan:  # a new market, whose cap refers to the remaining sellers
            buyer = replace(buyer, m=remaining)
        try:
            made = plan(prior, buyer, **history, gap=_GAP)
        except AllocationError:
            return self.opening
        return replace(self.start, prior=prior, plan=made)

    def _learnt(self, reports: Floats) -> Prior:
        """Compute the empirical prior of the reports and quantiles of the initial prior."""
        levels = (np.arange(_GUESS) + 0.5) / _GUESS
        known = np.concatenate((reports, np.asarray(self.prior.quantile(levels))))
        # Otherwise, after a single report near 0, the plan would buy only at reports near 0.
        sample = EmpiricalPrior(np.maximum(known, _FREE * np.median(known)))
        low, high = sample.support
        # The ironed virtual cost is constant between corners, so it suffices to store the corners.
        corners = np.unique(np.concatenate(([low], sample.breakpoints, [high])))
        counts = np.diff(np.rint(sample.cdf(corners) * known.size), prepend=0.0)
        return EmpiricalPrior(corners, counts)

    def to_dict(self) -> dict[str, Any]:
        """Convert the policy to a dictionary for JSON; see :func:`policy_from_dict`."""
        options = {name: getattr(self, name) for name in _OPTIONS}
        return {"policy": "adaptive", "start": self.start.to_dict(), **options}

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={getattr(self, name)}" for name in _OPTIONS)
        return f"AdaptivePolicy({self.start!r}, {given}: {len(self.stages)} new plans)"


def policy_from_dict(described: Mapping[str, Any]) -> OnlinePolicy | AdaptivePolicy:
    """Restore a policy with identical quotes from the result of its ``to_dict``.

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
        numbers = [float(described["plan"][name]) for name in _PLAN]
        made = Plan(Terms(*numbers[:3]), *numbers[3:])
        low, high = map(float, described["support"])
        given: dict[str, Any] = {name: described[name] for name in _ARGUMENTS}
        prior = prior_from_dict(described["prior"])
        return OnlinePolicy(prior, **given, plan=made, support=(low, high))
    except ConvexMarketError:
        raise
    except (LookupError, TypeError, ValueError) as error:
        raise ParameterError(
            f"this dictionary does not describe an online policy ({error!r}); give the result of "
            "to_dict"
        ) from None


def _stages(m: int) -> tuple[int, ...]:
    """Return numbers of sellers that grow geometrically up to m/2, and m minus each number."""
    sizes, size = [], float(_FIRST)
    while size <= m / 2:
        sizes.append(round(size))
        size = max(size * _GROWTH, size + 1.0)
    return tuple(sorted({*sizes, *(m - size for size in sizes)}))


def _algorithm_3(prior: Prior, buyer: Buyer) -> Plan:
    """Compute the plan of Algorithm 3. The density of psi at 0 is half the density of the prior."""
    if prior.is_step:
        why = "it is a sample, which has no density"
    elif prior.support[0] > 0:
        why = f"its density at 0 is 0, because its support starts at {prior.support[0]:g}"
    else:
        near = np.asarray(prior.pdf(prior.quantile(_NEXT_TO_ZERO)), dtype=float)
        settled = np.abs(np.diff(np.log(np.maximum(near, np.finfo(float).tiny))))[-3:]
        if 0 < near[-1] < np.inf and settled.max() <= 1e-2:
            return algorithm_3(prior, buyer, 0.5 * float(near[-1]))
        why = f"its density near 0 is {near[-1]:.3g}, and tends to 0 or to infinity"
    raise PriorError(
        f"{prior!r} violates A's Assumption IV.3, which Algorithm 3 requires (a density at 0 that "
        f'is positive and finite): {why}; for other priors, give rule="expectation"'
    )


def _written(value: float) -> float | str:
    """Convert a number for JSON, which supports neither infinities nor NaN."""
    return float(value) if np.isfinite(value) else str(value)
