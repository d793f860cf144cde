"""Quote sellers in order of arrival, and audit the quotes of a policy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import check_instance, checked_numbers
from convexmarket.display import Shown, axes
from convexmarket.errors import ParameterError
from convexmarket.incentives.audit import IncentiveAudit
from convexmarket.online.plan import Buyer
from convexmarket.online.policy import AdaptivePolicy, OnlinePolicy
from convexmarket.priors.prior import Prior, as_prior

Floats = NDArray[np.float64]
Policy: TypeAlias = OnlinePolicy | AdaptivePolicy

#: Levels of the quantiles of the prior that represent the expected sellers.
_TYPICAL = (np.arange(20_000) + 0.5) / 20_000
#: Tolerance for rounding errors in an audit, relative to the largest payment.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class OnlineOutcome(Shown):
    """Quotes of a policy, under the assumption that all quoted sellers accept.

    Attributes
    ----------
    sensitivities, epsilon, payments : ndarray, shape (n,)
        Reports, guarantees and payments of the quoted sellers, in order of arrival.
    n_turned_away : int
        Number of sellers who were not quoted because they arrived after the last expected seller.
    buyer : Buyer
    policies : tuple of OnlinePolicy
        Policies that computed the quotes, in order.

    Examples
    --------
    >>> import convexmarket as cm
    >>> policy = cm.OnlinePolicy(cm.Uniform(0, 1), 10, mu=1, sigma=1, gamma=1)
    >>> outcome = cm.online.run_online(policy, [0.1, 0.2, 0.9])
    >>> outcome.n_bought, outcome.epsilon.round(2)
    (2, array([1.28, 0.24, 0.  ]))
    """

    sensitivities: Floats
    epsilon: Floats
    payments: Floats
    n_turned_away: int
    buyer: Buyer
    policies: tuple[OnlinePolicy, ...] = ()

    @property
    def eta(self) -> float:
        """Sum of the guarantees sold."""
        return float(self.epsilon.sum())

    @property
    def weights(self) -> Floats:
        """Weights ``epsilon/eta`` of the sellers in the model, or NaN if nothing is sold."""
        with np.errstate(invalid="ignore"):
            return self.epsilon / self.eta

    @property
    def n_bought(self) -> int:
        """Number of sellers with a positive guarantee."""
        return int(np.count_nonzero(self.epsilon))

    def to_frame(self) -> pd.DataFrame:
        """Return a table of the report, epsilon and payment of each quoted seller."""
        columns = {"sensitivity": self.sensitivities, "epsilon": self.epsilon}
        return pd.DataFrame(columns | {"payment": self.payments}).rename_axis(index="arrival")

    def plot(self, ax: Any = None) -> Any:
        """Plot the sold epsilon against the report, and return the matplotlib Axes.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        """
        ax = axes(ax, xlabel="sensitivity", ylabel="epsilon sold")
        ax.plot(self.sensitivities, self.epsilon, ".", ms=4)
        return ax

    def __str__(self) -> str:
        return (
            f"{self.n_bought} of {self.epsilon.size} quoted sellers sell a total epsilon of "
            f"{self.eta:.6g} for {self.payments.sum():.6g}; {self.n_turned_away} were turned away"
        )

    def loss(self, prior: Prior) -> float:
        """Compute ``mu*||a|| + sigma/eta + gamma*psi'eps`` (A, Eq. 11), or inf without sales.

        Parameters
        ----------
        prior : Prior
        """
        bought = self.epsilon > 0
        costs = np.asarray(as_prior(prior).ironed_virtual_cost(self.sensitivities[bought]))
        return self._loss(float(costs @ self.epsilon[bought]))

    def paid_loss(self) -> float:
        """Compute :meth:`loss` with the payments instead of the virtual costs psi'eps."""
        return self._loss(self.payments.sum())

    def _loss(self, spent: float) -> float:
        norm = np.linalg.norm(self.epsilon)
        return float(self.buyer.loss(norm, self.eta, spent)) if self.eta else np.inf


def run_online(policy: Policy, sensitivities: ArrayLike) -> OnlineOutcome:
    """Quote sellers up to the expected number, assuming that every quoted seller accepts.

    Parameters
    ----------
    policy : OnlinePolicy or AdaptivePolicy
    sensitivities : array_like, shape (n,)
        Reports in order of arrival.

    Returns
    -------
    OnlineOutcome

    Raises
    ------
    ParameterError
        If the reports are empty, or a report is not a number.

    Examples
    --------
    >>> import numpy as np
    >>> import convexmarket as cm
    >>> policy = cm.OnlinePolicy(cm.Uniform(1, 5), 1000, mu=1, sigma=1, gamma=1)
    >>> reports = cm.Uniform(1, 5).sample(1200, np.random.default_rng(0))
    >>> outcome = cm.run_online(policy, reports)
    >>> outcome.n_bought, outcome.n_turned_away, round(outcome.loss(cm.Uniform(1, 5)), 2)
    (37, 200, 2.29)
    """
    kinds = (OnlinePolicy, AdaptivePolicy)
    check_instance("policy", policy, kinds, "an OnlinePolicy or an AdaptivePolicy")
    reports = checked_numbers("sensitivities", sensitivities)
    if reports.ndim != 1 or reports.size == 0:
        raise ParameterError(f"sensitivities has shape {reports.shape}; give one number per seller")
    quoted = reports[: policy.expected_sellers]
    epsilon, paid = np.empty(quoted.size), np.empty(quoted.size)
    stages = [stage for stage in policy.stages if stage < quoted.size]
    policies: list[OnlinePolicy] = []
    for start, stop in pairwise((0, *stages, quoted.size)):
        made = policy.replanned(quoted[:start], epsilon[:start]) if start else policy.opening
        policies.append(made)
        epsilon[start:stop], paid[start:stop] = made.quote(quoted[start:stop])
    refused = reports.size - quoted.size
    return OnlineOutcome(quoted, epsilon, paid, refused, policy.buyer, tuple(policies))


def planned(policy: OnlinePolicy) -> dict[str, float]:
    """Compute the expected outcome if all expected sellers arrive and accept.

    Sales and payments are averaged over quantiles of the prior.
    """
    sellers, eta = float(policy.expected_sellers), policy.plan.eta
    epsilon, payment = policy.quote(policy.prior.quantile(_TYPICAL))
    largest = policy.quote(policy.support[0]).epsilon
    return {
        "sellers": sellers,
        "bought": sellers * float(np.mean(epsilon > 0)),
        "eta": eta,
        "payments": sellers * float(payment.mean()),
        "loss": policy.plan.objective,
        "largest_epsilon": largest,
        "largest_weight": largest / eta,
    }


def audit_quotes(policy: OnlinePolicy, reports: ArrayLike | None = None) -> IncentiveAudit:
    """Compute the largest gain from misreporting at each true sensitivity.

    Parameters
    ----------
    policy : OnlinePolicy
    reports : array_like, optional
        True sensitivities, which also serve as misreports. By default, values across the support,
        denser where privacy is bought than elsewhere.

    Returns
    -------
    IncentiveAudit
        Table with one row for each true sensitivity.

    Raises
    ------
    ParameterError
        If ``reports`` is empty.

    Examples
    --------
    >>> import convexmarket as cm
    >>> policy = cm.OnlinePolicy(cm.Uniform(0, 1), 50, mu=1, sigma=1, gamma=0.1)
    >>> float(cm.online.audit_quotes(policy, [0.1, 0.4]).max_gain) < 1e-9
    True
    """
    check_instance("policy", policy, OnlinePolicy)
    tried = _reports(policy) if reports is None else checked_numbers("reports", reports).ravel()
    if not tried.size:
        raise ParameterError("reports are empty; give at least one report")
    epsilon, payment = policy.quote(tried)
    best = [int(np.argmax(payment - truth * epsilon)) for truth in tried]
    table = pd.DataFrame({"sensitivity": tried, "epsilon": epsilon, "payment": payment})
    table["surplus"] = payment - tried * epsilon
    table["max_gain"] = payment[best] - tried * epsilon[best] - table["surplus"]
    table["best_misreport"] = tried[best]
    table["max_rise"] = float(np.diff(epsilon[np.argsort(tried)]).max(initial=0.0))
    tolerance = _ROUNDING * float(payment.max()) + 2.0 * policy.payment_error
    return IncentiveAudit(table, tried.size, tried.size, tolerance)


def _reports(policy: OnlinePolicy) -> Floats:
    """Return reports across the support, denser where privacy is bought than elsewhere."""
    (low, high), last = policy.support, policy.highest_sensitivity
    end = high if np.isfinite(high) else float(policy.prior.quantile(1.0 - 1e-6))
    top = min(high, low + 2.0 * (last - low)) if last > low else end
    kinks = policy.prior.breakpoints[:200]
    even = np.linspace(low, top, 301), np.linspace(low, end, 101)
    near = np.concatenate((*even, kinks, np.nextafter(kinks, np.inf)))
    return np.unique(near[(near >= low) & (near <= high)])
