r"""Choose parameters of a learner privately, among models trained on private rows.

Candidates are scored on public rows but trained on private rows, so the choice uses privacy
(contrary to A, Remark IV.2). Learners with delta zero can be charged by two methods. With "sum",
each of K candidates is trained once with epsilons :math:`\epsilon_i/K`, and all models can be
published. With "trials", J candidates are drawn at random and trained with epsilons
:math:`\epsilon_i/2`, and only the best model is published. J is secret and has the distribution
:math:`P(J=k) \propto (1-\gamma)^k/k` (Papernot and Steinke, Hyperparameter Tuning with Renyi
Differential Privacy; proof in docs/theory/objective-perturbation.md).
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
from convexmarket.learners.domain import Granted
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

Charge = Literal["trials", "sum"]

#: Relative reduction of the epsilons of a candidate that covers rounding errors.
BELOW = 2.0**-50
MOST_TRIALS = 10_000.0
#: Assumption of the guarantee for each method of charging.
HOW: dict[str, str] = {
    "sum": "each candidate is trained once, and the privacy losses of all candidates add up",
    "trials": "only the best of a random number of trials is published; the number, drawn in double"
    " precision, is secret",
}


@dataclass(eq=False, repr=False)
class PrivateSearch(BaseEstimator):
    """A search for the parameters of a learner with a privacy guarantee.

    Parameters
    ----------
    learner : Learner
        Any learner that has delta zero and the methods ``set_params`` and ``score``.
    grid : mapping of str to sequence
        Candidates, as in :class:`sklearn.model_selection.ParameterGrid`.
    validation : (X, y)
        Public rows and labels for the scores of candidates.
    charge : {"trials", "sum"}, default "trials"
        Method of charging. For two candidates, both methods add equal noise to each model.
    trials : float, default 10.0
        Mean number of trials.
    epsilon : default None
        Default ``epsilon`` of ``fit``.

    Attributes
    ----------
    best_estimator_, best_params_ : Learner, dict
        The best learner and its parameters. The learner's ``guarantee_`` covers only one training.
    scores_ : ndarray of shape (n_candidates,), or None
        Scores of all candidates in the order of the grid, or None for ``"trials"``.
    guarantee_, epsilon_ : Guarantee, ndarray of shape (n_rows,)
        Guarantee of the whole search, and the epsilon of each row in this guarantee.

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
        """Compute (mu, sigma) of a candidate, which is trained with a share of epsilon.

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
        """Train the candidates, and store the candidate with the highest score.

        Parameters
        ----------
        X, y, epsilon, rows, accountant, random_state
            As in ``fit`` of the learner. Epsilon must be finite, and is charged once in total.

        Raises
        ------
        ParameterError
            If an argument or a candidate's share of epsilon is invalid.
        BudgetExceededError
            If the search exceeds a budget.
        """
        default = self.epsilon if epsilon is None else epsilon
        X, y, epsilon, rows = aligned(X=X, y=y, epsilon=default, rows=rows)
        granted = Granted.of(X, epsilon)
        if not np.isfinite(granted.epsilon).all():
            raise ParameterError(
                "epsilon is infinite in some rows, but PrivateSearch needs finite epsilons"
            )
        candidates, share = self._candidates(), self._share()
        gamma = _stopping(self.trials)
        part = granted.epsilon * (share * (1.0 - BELOW))
        learners = [unfitted(self.learner).set_params(**chosen) for chosen in candidates]
        for learner in learners:
            if hasattr(learner, "promise"):
                learner.promise(part)  # an invalid candidate raises an error before the charge
        assumptions = (
            noise_assumption(random_state),
            "the candidates and the rows of their scores are public",
            HOW[self.charge],
            "epsilon does not depend on the data",
            "the assumptions of best_estimator_.guarantee_ hold for every training",
        )
        mechanism = f"a choice among {len(candidates)} trained candidates"
        guarantee = Guarantee(granted.epsilon, 0.0, mechanism, self.charge, assumptions)
        charge = reserve(guarantee, accountant, rows, names=names_of(X), random_state=random_state)
        rng = resolve_generator(random_state)
        charge()

        order = list(range(len(candidates)))
        if self.charge == "trials":
            order = rng.integers(0, len(order), int(rng.logseries(1.0 - gamma))).tolist()
        source: dict[str, Any] = {} if random_state is None else {"random_state": rng}
        if isinstance(random_state, Simulation):
            source = {"random_state": Simulation(rng)}
        models, scores = [], []
        for k in order:
            model, account = unfitted(learners[k]), PrivacyAccountant(part)
            model.fit(X, y, epsilon=part, accountant=account, **source)
            models.append(model)
            scores.append(float(model.score(*self.validation)))
        best = int(np.argmax(scores))
        self.best_estimator_, self.best_params_ = models[best], candidates[order[best]]
        self.scores_ = np.array(scores) if self.charge == "sum" else None
        self.guarantee_, self.epsilon_ = guarantee, guarantee.epsilon
        return self

    def predict(self, X: ArrayLike) -> Any:
        """Return the predictions of the chosen model.

        Parameters
        ----------
        X : array_like
        """
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the score of the chosen model.

        Parameters
        ----------
        X, y
            Passed to ``score`` of the learner.
        """
        check_is_fitted(self)
        return float(self.best_estimator_.score(X, y))

    def _candidates(self) -> list[dict[str, Any]]:
        try:
            candidates = list(ParameterGrid(dict(self.grid)))
        except (TypeError, ValueError) as error:
            raise ParameterError(f"grid must map parameters to their values: {error}") from None
        if candidates in ([], [{}]):
            raise ParameterError("grid is empty; give parameters and their candidate values")
        return candidates

    def _share(self) -> float:
        check_choice("charge", self.charge, Charge)
        return 0.5 if self.charge == "trials" else 1.0 / len(self._candidates())


def _stopping(trials: float) -> float:
    """Compute gamma such that ``trials == (1 - gamma) / (gamma * log(1 / gamma))``."""
    if not 1.0 < as_float(trials) <= MOST_TRIALS:
        raise ParameterError(f"trials must be above 1 and at most {MOST_TRIALS:g}, got {trials!r}")

    return float(np.exp(brentq(lambda x: np.expm1(-x) / -x - trials, -40.0, -1e-12)))
