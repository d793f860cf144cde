r"""Private choice of a learner's parameters by models trained on private rows.

Candidates are scored on public rows, but trained on private rows, so the choice has a cost (unlike
in A, Remark IV.2). There are two ways to charge it, both for learners with delta zero:

``"sum"``
    Each of K candidates is trained once, on :math:`\epsilon_i/K`. All may be published.
``"trials"``
    J times, a candidate is drawn at random and trained on :math:`\epsilon_i/2`. Only the best is
    published, and not J, with :math:`P(J=k) \propto (1-\gamma)^k/k`. The total is at most
    :math:`\epsilon_i`, for any number of candidates (Papernot and Steinke, Hyperparameter Tuning
    with Renyi Differential Privacy).

Proof of the second, for one row that is replaced and :math:`e = \epsilon_i/2`. Let Q be the law of
one trial, and order its results by score. With :math:`f(q) = E\,q^J` the result y is published with
probability :math:`f(Q_{\le y}) - f(Q_{<y}) = Q(y)\int_0^1 f'(Q_{<y} + uQ(y))\,du`, and
:math:`f'(q) \propto 1/(1-(1-\gamma)q) = 1/(\gamma + (1-\gamma)(1-q))`. Replacing the row changes
Q(y), and every :math:`1 - q`, which is the probability of better results, by a factor of at most
:math:`e^e`; so f' changes by at most that factor, and the product by :math:`e^{2e}`. End of proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from sklearn.base import BaseEstimator
from sklearn.model_selection import ParameterGrid
from sklearn.utils.validation import check_is_fitted

from convexmarket.checks import aligned, as_float, check_choice
from convexmarket.errors import ParameterError
from convexmarket.learners.granted import Granted
from convexmarket.learners.private_learner import Learner, unfitted
from convexmarket.privacy.accountant import Account, PrivacyAccountant
from convexmarket.privacy.active import names_of, reserve
from convexmarket.privacy.guarantee import Guarantee
from convexmarket.privacy.random_sources import (
    RandomSource,
    Simulation,
    noise_assumption,
    resolve_generator,
)

__all__ = ["PrivateSearch"]

Charge = Literal["trials", "sum"]

#: Relative margin for the roundings of a share.
BELOW = 2.0**-50
MOST_TRIALS = 10_000.0


@dataclass(eq=False, repr=False)
class PrivateSearch(BaseEstimator):
    r"""A learner with a private choice of its parameters.

    Parameters
    ----------
    learner : Learner
        Any learner with ``set_params`` and ``score``, and a delta of zero.
    grid : mapping of str to sequence
        Candidates, as for :class:`sklearn.model_selection.ParameterGrid`.
    validation : (X, y)
        Public rows and labels, by which candidates are scored.
    charge : {"trials", "sum"}, default "trials"
        Method of charging; see the module. ``"sum"`` is better for two candidates, and equal for
        three or four.
    trials : float, default 10.0
        Mean number of trials; for ``charge="trials"``.
    epsilon : float, array_like of shape (n_rows,) or None, default None
        Default ``epsilon`` of ``fit``.

    Attributes
    ----------
    best_estimator_ : Learner
        Fitted learner; its ``guarantee_`` covers only one training.
    best_params_ : dict
    scores_ : ndarray of shape (n_candidates,), or None
        Scores of all candidates, in the grid's order, if they are public.
    guarantee_ : Guarantee
        Guarantee of the choice and the training together.
    epsilon_ : ndarray of shape (n_rows,)

    Examples
    --------
    >>> from convexmarket.learners import PrivateLogisticRegression
    >>> from convexmarket.privacy import Simulation
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.7, 0.7, (1100, 2))
    >>> y = np.where(X[:, 0] > 0, 1, -1)
    >>> grid = {"regularization": [0.01, 0.1, 1.0]}
    >>> search = PrivateSearch(PrivateLogisticRegression(), grid, validation=(X[1000:], y[1000:]))
    >>> search = search.fit(X[:1000], y[:1000], epsilon=2.0, random_state=Simulation(0))
    >>> search.score(X, y) > 0.9, float(search.epsilon_.max())
    (True, 2.0)
    """

    learner: Learner
    grid: Mapping[str, Sequence[Any]]
    _: KW_ONLY
    validation: tuple[ArrayLike, ArrayLike]
    charge: Charge = "trials"
    trials: float = 10.0
    epsilon: ArrayLike | None = None

    def risk(self, n_features: int) -> tuple[float, float]:
        """Return (mu, sigma) of the learner, with doubled noise because of the choice.

        Parameters
        ----------
        n_features : int
        """
        mu, sigma = self.learner.risk(n_features)
        return mu, sigma / self._share()

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        epsilon: ArrayLike | None = None,
        rows: ArrayLike | None = None,
        accountant: Account | None = None,
        random_state: RandomSource = None,
    ) -> Self:
        """Train candidates, and keep the best.

        The arguments are those of the learner. ``epsilon`` is what each row granted to the whole
        search, finite, and is charged once. ``random_state`` draws the choice and the noise.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features)
        y : array_like of shape (n_rows,)
        epsilon : array_like of shape (n_rows,) or float, optional
            Largest epsilon of each row.
        rows : array_like of int, optional
            Positions of the rows; all by default.
        accountant : PrivacyAccountant or LedgerAccount, optional
        random_state : RandomSource, optional

        Raises
        ------
        ParameterError
            If an argument is out of its range, or a candidate cannot keep its share.
        BudgetExceededError
            If a row cannot pay, or a candidate loses more than its share.
        """
        default = self.epsilon if epsilon is None else epsilon
        X, y, epsilon, rows = aligned(X=X, y=y, epsilon=default, rows=rows)
        granted = Granted.of(X, epsilon)
        if not np.isfinite(granted.epsilon).all():
            raise ParameterError("epsilon is infinite in some rows; choose among them for free")
        candidates, share = self._candidates(), self._share()
        gamma = _stopping(self.trials)
        part = granted.epsilon * (share * (1.0 - BELOW))
        for parameters in candidates:
            promise = getattr(self._learner(parameters), "promise", None)
            if promise is not None:
                promise(part)  # before the charge, so that none is refused afterwards
        how = "each candidate is trained once, and their privacy losses add up"
        if self.charge == "trials":
            how = (
                "only the best of a random number of trials is published; the number, drawn in"
                " double precision, is secret"
            )
        assumptions = (
            noise_assumption(random_state),
            "the candidates and the rows of their scores are public",
            how,
            "epsilon does not depend on the data",
            "each training stays within its share, by the guarantee of best_estimator_",
        )
        mechanism = f"a choice among {len(candidates)} trained candidates"
        guarantee = Guarantee(granted.epsilon, 0.0, mechanism, self.charge, assumptions)
        charge = reserve(guarantee, accountant, rows, names=names_of(X), random_state=random_state)
        rng = resolve_generator(random_state)
        charge()

        def trained(parameters: dict[str, Any]) -> tuple[float, Any]:
            learner = self._learner(parameters)
            source: dict[str, Any] = {} if random_state is None else {"random_state": rng}
            if isinstance(random_state, Simulation):
                source = {"random_state": Simulation(rng)}
            learner.fit(X, y, epsilon=part, accountant=PrivacyAccountant(part), **source)
            return float(learner.score(*self.validation)), learner

        order = list(range(len(candidates)))
        if self.charge == "trials":
            count = int(rng.logseries(1.0 - gamma))
            order = rng.integers(0, len(candidates), count).tolist()
        scores, models = zip(*(trained(candidates[k]) for k in order), strict=True)
        best = int(np.argmax(scores))
        self.best_estimator_, self.best_params_ = models[best], candidates[order[best]]
        self.scores_ = np.array(scores) if self.charge == "sum" else None
        self.guarantee_, self.epsilon_ = guarantee, guarantee.epsilon
        return self

    def predict(self, X: ArrayLike) -> Any:
        """Return the predictions of the chosen model.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features)
        """
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the chosen model's score.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features)
        y : array_like of shape (n_rows,)
        """
        check_is_fitted(self)
        return float(self.best_estimator_.score(X, y))

    def _learner(self, parameters: dict[str, Any]) -> Any:
        return unfitted(self.learner).set_params(**parameters)

    def _candidates(self) -> list[dict[str, Any]]:
        try:
            candidates = list(ParameterGrid(dict(self.grid)))
        except (TypeError, ValueError) as error:
            raise ParameterError(f"grid must map parameters to their values: {error}") from None
        if not candidates or not dict(self.grid):
            raise ParameterError("grid is empty; give parameters, and values to choose from")
        return candidates

    def _share(self) -> float:
        """Return the share of the granted epsilon for one training."""
        check_choice("charge", self.charge, Charge)
        return 0.5 if self.charge == "trials" else 1.0 / len(self._candidates())


def _stopping(trials: float) -> float:
    """Return gamma for a mean number of trials, ``(1 - gamma) / (gamma * log(1 / gamma))``."""
    if not 1.0 < as_float(trials) <= MOST_TRIALS:
        raise ParameterError(f"trials must lie above 1, at most {MOST_TRIALS:g}, got {trials!r}")

    def excess(log_gamma: float) -> float:
        return float(np.expm1(-log_gamma) / -log_gamma - trials)

    return float(np.exp(brentq(excess, -40.0, -1e-12)))
