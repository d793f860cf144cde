"""Quotes for sellers on arrival, from their own report and the prior alone (A, section V)."""

from __future__ import annotations

from dataclasses import dataclass
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
from convexmarket.errors import NotSupportedError, ParameterError, PriorError
from convexmarket.online.curves import Curve
from convexmarket.online.plan import Buyer, Plan, algorithm_3, plan
from convexmarket.priors import Prior
from convexmarket.priors.prior import as_prior

__all__ = ["OnlinePolicy", "Quote", "Rule"]

Floats = NDArray[np.float64]
Rule: TypeAlias = Literal["expectation", "algorithm-3"]

#: Numbers of a plan, and arguments besides the prior, as :meth:`OnlinePolicy.to_dict` names them.
PLAN = ("price", "scale", "largest", "eta", "objective", "lower_bound")
ARGUMENTS = ("expected_sellers", "mu", "sigma", "gamma", "cap", "rule")
#: Where Assumption IV.3 looks at the density next to zero, in quantiles.
_NEXT_TO_ZERO = 0.5 ** np.arange(4.0, 41.0, 4.0)


class Quote(NamedTuple):
    """Guarantees to buy (0 for nothing) and their payments (A, Eq. 8), in the reports' shape.

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
    """Quotes for sellers who arrive one by one (A, Algorithm 3, and its general form).

    Parameters
    ----------
    prior : Prior or frozen scipy.stats distribution
    expected_sellers : int
        m; see the notes for fewer and more.
    mu, sigma, gamma : float
        Weights of spread, noise and payments in the buyer's objective, all > 0 (A, Eq. 11).
    cap : float, optional
        k > 1: no seller sells more than k/m of the expected total.
    rule : {"expectation", "algorithm-3"}
        "expectation": A's Eq. (14) with its sums replaced by expectations, for any prior.
        "algorithm-3": A's closed form, the leading order of the first rule for many sellers. It
        requires a prior that satisfies A's Assumption IV.3, and no cap.
    plan : Plan, optional
        Price, eta, objective and a lower bound, in expectation; computed by default.
    support : (float, float), optional
        The range of reports; by default that of the prior.

    Attributes
    ----------
    payment_error : float
        Estimated error of any payment: 0 for closed forms and sums, else the quadrature's.
    highest_sensitivity : float
        Largest report from which something is bought; NaN if nothing is bought.
    stages : tuple of int
        Numbers of sellers after which another plan is made: none here.

    Raises
    ------
    ParameterError, NotSupportedError
        If an argument is out of its range, or "algorithm-3" has a cap.
    PriorError, UnattainedOptimumError
        If "algorithm-3" has a prior outside Assumption IV.3, or free sellers leave no optimum.

    Notes
    -----
    Guarantees do not rise with the report and payments follow Eq. (8), so the truth is a best reply
    whatever the others do, and no truthful seller loses by accepting.

    If a fraction xi of the expected sellers comes, privacy and payments are xi times the planned
    ones, and the loss is larger (A, Theorem V.1). Sellers after the expected number are refused
    (:class:`OnlineMarket`, :func:`run_online`).

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
        self.mu, self.sigma, self.gamma = (
            check_positive(name, getattr(self, name)) for name in ("mu", "sigma", "gamma")
        )
        if self.cap is not None:
            cap = as_float(self.cap)
            if not 1 < cap < np.inf:
                raise ParameterError(
                    "cap, the largest weight over the average one, must be a number > 1, got "
                    f"{self.cap!r}"
                )
            self.cap = cap
        check_choice("rule", self.rule, Rule)
        if self.rule == "algorithm-3" and self.cap is not None:
            raise NotSupportedError(
                f"cap is {self.cap:g}, but Algorithm 3 supports no cap; give "
                'rule="expectation", or no cap'
            )
        if self.plan is not None:
            check_instance("plan", self.plan, Plan)
        elif self.rule == "algorithm-3":
            self.plan = algorithm_3(self.prior, self.buyer, _density_at_zero(self.prior))
        else:
            self.plan = plan(self.prior, self.buyer)
        if self.support is None:
            self.support = self.prior.support
        elif checked_numbers("support", self.support).shape != (2,):
            raise ParameterError(f"support must be two numbers, low and high, got {self.support!r}")
        self._curve = Curve(self.prior, self.plan.terms, self.support[0])
        self.payment_error, self.highest_sensitivity = self._curve.error, self._curve.last

    @property
    def buyer(self) -> Buyer:
        """The buyer's objective in numbers."""
        cap = np.inf if self.cap is None else self.cap
        return Buyer(self.mu, self.sigma, self.gamma, self.expected_sellers, cap)

    def quote(self, sensitivity: ArrayLike) -> Quote:
        """Quote a report in the support, or an array of them; others are a PriorError.

        Raises
        ------
        PriorError
            If a report is outside the support.
        """
        low, high = self.support
        reports = checked_numbers("sensitivity", sensitivity)
        flat = reports.ravel()
        # One pass: NaN and infinities fail the comparison as well.
        if flat.size and not (flat.min() >= low and flat.max() <= high and flat.max() < np.inf):
            outside = ~((flat >= low) & (flat <= high) & np.isfinite(flat))
            raise PriorError(
                f"{int(outside.sum())} of {flat.size} sensitivities are not in the support "
                f"[{low:g}, {high:g}] of {self.prior!r}; the first is {flat[np.argmax(outside)]}. "
                "Correct the report, or declare a prior that covers it"
            )
        sold, rent = self._curve.sell(flat)
        paid = flat * sold + rent
        if reports.ndim == 0:
            return Quote(float(sold[0]), float(paid[0]))
        return Quote(sold.reshape(reports.shape), paid.reshape(reports.shape))

    @property
    def start(self) -> OnlinePolicy:
        """The policy before the first seller: this one."""
        return self

    @property
    def opening(self) -> OnlinePolicy:
        """The policy of the first sellers: this one."""
        return self

    def replanned(self, reports: ArrayLike, sold: ArrayLike) -> OnlinePolicy:
        """Return the policy for the next sellers: this one."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the policy with its plan, ready for JSON; see :func:`policy_from_dict`."""
        plan = self.plan
        numbers = [*vars(plan.terms).values(), plan.eta, plan.objective, plan.lower_bound]
        return {
            "policy": "fixed",
            "prior": self.prior.to_dict(),
            **{name: getattr(self, name) for name in ARGUMENTS},
            "support": [_written(bound) for bound in self.support],
            "plan": dict(zip(PLAN, map(_written, numbers), strict=True)),
        }

    def __repr__(self) -> str:
        cap = "" if self.cap is None else f", cap={self.cap:g}"
        return (
            f"OnlinePolicy({self.prior!r}, {self.expected_sellers} sellers, mu={self.mu:g}, "
            f"sigma={self.sigma:g}, gamma={self.gamma:g}{cap}, {self.rule}: buys up to a virtual "
            f"cost of {self.plan.cutoff:.6g}, eta={self.plan.eta:.6g})"
        )


def _density_at_zero(prior: Prior) -> float:
    """Return the density of the virtual cost at 0: half that of the sensitivity there."""
    if prior.is_step:
        why = "it is a sample, which has no density"
    elif prior.support[0] > 0:
        why = f"its density at 0 is 0, as its support starts at {prior.support[0]:g}"
    else:
        near = np.asarray(prior.pdf(prior.quantile(_NEXT_TO_ZERO)), dtype=float)
        settled = np.abs(np.diff(np.log(np.maximum(near, np.finfo(float).tiny))))[-3:]
        if 0 < near[-1] < np.inf and settled.max() <= 1e-2:
            return 0.5 * float(near[-1])
        why = f"its density next to 0 is {near[-1]:.3g}, and tends to 0 or to infinity"
    raise PriorError(
        f"{prior!r} violates A's Assumption IV.3, which Algorithm 3 needs (a density at 0 that "
        f"is positive and finite): {why}; the general rule needs no such assumption, give "
        'rule="expectation"'
    )


def _written(value: float) -> float | str:
    """Return a number for JSON, which has no infinite ones and no NaN."""
    return float(value) if np.isfinite(value) else str(value)
