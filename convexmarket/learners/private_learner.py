"""The protocol of learners, and the base class of the learners in this package.

``fit`` plans the release from the granted epsilons and other public numbers, and computes the
guarantee. It then checks the account and the rows, charges the account, and draws the noise. Each
learner defines its public domain and its plan.
"""

from __future__ import annotations

from abc import abstractmethod
from copy import deepcopy
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from convexmarket.checks import aligned, check_count, checked_numbers
from convexmarket.data.features import PublicFeatures
from convexmarket.errors import DataError, ParameterError
from convexmarket.learners.domain import (
    Ball,
    Classes,
    Domain,
    Granted,
    Interval,
    Perturbation,
    dense_rows,
)
from convexmarket.learners.minimiser import PartedRows, in_parts, labels_of
from convexmarket.privacy.accountant import Account
from convexmarket.privacy.active import names_of, reserve
from convexmarket.privacy.guarantee import Guarantee, Profile
from convexmarket.privacy.random_sources import (
    RandomSource,
    noise_assumption,
    resolve_generator,
    warn_of_plain_noise,
)

Floats = NDArray[np.float64]


class Learner(Protocol):
    """The protocol of learners that train a model with an epsilon for each row.

    Classes with these members need not inherit from this class (docs/howto/learners.md). After
    ``fit``, ``guarantee_`` has one epsilon for each row, which is at most the granted epsilon.
    :func:`~convexmarket.audit_privacy` audits the guarantee.
    """

    guarantee_: Guarantee

    def risk(self, n_features: int) -> tuple[float, float]:
        """Compute the public constants of the excess risk ``mu * ||a|| + sigma / eta``."""
        ...

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        epsilon: ArrayLike,
        rows: ArrayLike | None = None,
        accountant: Account | None = None,
    ) -> Self:
        """Train a model, and release it with at most the granted epsilon for each row, in nats.

        Rows with epsilon 0 are not read. Budgets are checked before rows are read.

        Parameters
        ----------
        X, y, epsilon : array_like of shape (n_rows, n_features), (n_rows,), (n_rows,)
        rows, accountant : array_like of int, Account, optional
            Positions of the rows in the account, by default all rows, and the account.
        """
        ...


def unfitted(learner: Any) -> Any:
    """Return an unfitted copy of a learner."""
    return clone(learner) if isinstance(learner, BaseEstimator) else deepcopy(learner)


class PrivateLearner(BaseEstimator):
    """Base class of learners, which implements fitting, guarantees and predictions."""

    regularization: float | str
    features: PublicFeatures | None
    epsilon: ArrayLike | None
    random_state: RandomSource

    #: Name of the model in a guarantee.
    _model: ClassVar[str]
    #: Names of the domain's parameters. If a value is None, it is computed from private rows.
    _public: ClassVar[tuple[str, ...]]
    #: Whether tables are mapped to the unit box instead of the ball.
    _box: ClassVar[bool] = False
    #: Name of the parameter that is None if the noise is drawn in floating point.
    _exactness: ClassVar[str]

    @abstractmethod
    def _check_parameters(self) -> None:
        """Raise an error if a parameter is out of range."""

    @abstractmethod
    def _domain(self, n_features: int, X: Any = None, y: Any = None) -> Domain:
        """Return the public domain, where parameters that are None are computed from X and y."""

    @abstractmethod
    def _plan(self, granted: Granted, n_features: int, domain: Domain) -> Perturbation:
        """Plan the release of the used rows from public numbers only."""

    def _granted(self, granted: Granted) -> Granted:
        """Drop rows for which exact noise is too expensive, and return the remaining epsilons."""
        return granted

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        epsilon: ArrayLike | None = None,
        rows: ArrayLike | None = None,
        accountant: Account | None = None,
        random_state: RandomSource = None,
    ) -> Self:
        """Train a model, and release it with at most the granted epsilon for each row.

        Parameters
        ----------
        X, y : array_like of shape (n_rows, n_features), (n_rows,)
            Rows in the public domain, and labels from the public set or range. At most 100,000 rows
            are collected from partitions (:func:`convexmarket.partitions.rows`).
        epsilon : array_like of shape (n_rows,), or float
            Nonnegative epsilon of each row, or one number for all rows, in nats. It must not depend
            on the data. The default is ``self.epsilon``. Rows with epsilon 0 are not read. If some
            epsilons are infinite, only these rows are used by default, and they are not protected.
        rows : array_like of int, optional
            Positions of the rows in the account. The default is all rows of the account.
        accountant : Account, optional
            Account that is charged. By default, all open accounts
            (:func:`convexmarket.privacy.account`) are charged. If the fit fails after the charge,
            the charge remains, because the failure depends on the rows.
        random_state : None or Simulation, default None
            Source of the noise. The default is ``self.random_state``. If ``None``, a fresh seed is
            drawn and not stored. Noise of a :class:`~convexmarket.privacy.Simulation` is
            reproducible, but does not protect the rows. A plain seed causes a
            :class:`~convexmarket.errors.PrivacyLeakWarning`.

        Raises
        ------
        ParameterError
            If an argument is out of range, or no noise satisfies the epsilons.
        DataError
            If the data are malformed or outside the public domain.
        NotSupportedError
            If the release needs the rows in memory.
        BudgetExceededError
            If the release exceeds a budget. In this case, no row is read or charged.
        SolverError
            If the solver does not reach its tolerance. In this case, no model is released.
        """
        default = self.epsilon if epsilon is None else epsilon
        X, y, epsilon, rows = aligned(X=X, y=y, epsilon=default, rows=rows)
        source = self.random_state if random_state is None else random_state
        public = accountant is not None or rows is not None
        granted, plan, domain, data = self._begun(X, y, epsilon, public=public)
        rng = resolve_generator(source)
        guarantee = self._guarantee(granted, plan, domain, source)
        charge = reserve(guarantee, accountant, rows, names=names_of(X), random_state=source)
        matrix, labels = self._checked(*(data or self._read(X, y, granted)), granted, domain)
        if plan.noisy and not plan.exact:
            warn_of_plain_noise(self._exactness, source)
        charge()
        model, attributes = plan.release(matrix, labels, rng)
        # Attributes are set last, so that a failed fit does not leave a partial model.
        coef, level = domain.rows.coefficients(model)
        self.coef_ = domain.half * coef
        self.intercept_ = float(domain.half * level + domain.middle)
        self.guarantee_, self.epsilon_ = guarantee, guarantee.epsilon
        if isinstance(domain.rows, Ball):
            self.data_norm_ = domain.rows.data_norm
        if isinstance(domain.labels, Classes):
            self.classes_ = domain.labels.values
        self.__dict__.update(attributes)
        return self

    def _begun(
        self, X: Any, y: Any, epsilon: ArrayLike | None, *, public: bool = False
    ) -> tuple[Granted, Perturbation, Domain, tuple[Any, NDArray[Any]] | None]:
        """Return the epsilons, plan and domain of a release, and rows if they define the domain."""
        self._check_parameters()
        granted, n_features = self._granted(Granted.of(X, epsilon)), self._n_features(X, y)
        data = None
        if self._leaking():
            if public:
                self._refuse_leaks()
            data = self._read(X, y, granted)
        domain = self._domain(n_features, *(data or ()))
        return granted, self._plan(granted, n_features, domain), domain, data

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the label of each row.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features)
        """
        return self._answers(self._predicted(X))

    def _answers(self, values: Floats) -> NDArray[Any]:
        return values

    def promise(self, epsilon: ArrayLike, n_features: int | None = None) -> Guarantee:
        """Compute the guarantee of a fit from public quantities only, before the fit.

        A regularization of "auto" depends on ``n_features``, whose default is 1. If the domain is
        not public, a ParameterError is raised. Other errors are as in :meth:`fit`.
        """
        granted, plan, domain = self._planned(epsilon, 1 if n_features is None else n_features)
        return self._guarantee(granted, plan, domain, None)

    def noise_effect(self, epsilon: ArrayLike, n_features: int | None = None) -> float:
        r"""Compute the standard deviation of the noise in a prediction, before the fit.

        The deviation is in units of the label, or of the margin for a classifier. For rows drawn
        uniformly from the public domain, the deviation is
        :math:`\sqrt{s^2\sum_j h_j/(h_j+\lambda)^2}`, where s is the standard deviation of the noise
        in the gradient and :math:`h_j` are the mean squares of the features.

        Parameters
        ----------
        epsilon, n_features
            See :meth:`promise`. By default, ``features`` determines the number of features.
        """
        plan, domain, second = self._uniform(epsilon, n_features)
        constant = getattr(domain.rows, "constant", 0.0)
        second = np.append(second, [constant**2] * bool(constant))
        return domain.half * plan.noise_effect(second) if plan.noisy else 0.0

    def noise_limit(self, epsilon: ArrayLike, n_features: int | None = None) -> float:
        r"""Return the noise effect above which the model predicts no better than a constant.

        Without regularization, this effect is the standard deviation of uniform labels, or 4 for a
        classifier. Noise of deviation 4 changes the label of a row of margin 1 with probability
        0.4. Regularization reduces the signal to at most the share :math:`s = \sum_j h_j/(\sum_j
        h_j + \lambda)`, and the effect by the factor :math:`\sqrt{s(2-s)}`, or s for a classifier.
        """
        plan, domain, second = self._uniform(epsilon, n_features)
        share = float(second.sum() / (second.sum() + plan.regularization))
        if isinstance(domain.labels, Interval):
            return float(domain.labels.half * np.sqrt(share * (2.0 - share) / 3.0))
        return 4.0 * share

    def _uniform(
        self, epsilon: ArrayLike, n_features: int | None
    ) -> tuple[Perturbation, Domain, Floats]:
        """Return the plan of a fit, and mean squares of features that are uniform in the domain."""
        if n_features is None:
            if self.features is None:
                raise ParameterError("n_features is missing; pass the number of columns of X")
            n_features = self.features.n_features_out_
        n_features = check_count("n_features", n_features)
        _, plan, domain = self._planned(epsilon, n_features)
        if isinstance(domain.rows, Ball):
            return plan, domain, np.full(n_features, domain.rows.data_norm**2 / n_features)
        return plan, domain, np.full(n_features, 1.0 / 12.0 + (0.5 - domain.rows.centre) ** 2)

    def _planned(self, epsilon: ArrayLike, n_features: int) -> tuple[Granted, Perturbation, Domain]:
        self._check_parameters()
        self._refuse_leaks()
        array = np.atleast_1d(checked_numbers("epsilon", epsilon))
        granted = self._granted(Granted.of(array, array))
        domain = self._domain(n_features)
        return granted, self._plan(granted, n_features, domain), domain

    def _predicted(self, X: ArrayLike) -> Floats:
        check_is_fitted(self)
        rows = dense_rows(self, X, box=self._box, dtype=np.float64, reset=False)
        return np.asarray(rows @ self.coef_ + self.intercept_)

    def _leaking(self) -> list[str]:
        return [name for name in self._public if getattr(self, name) is None]

    def _refuse_leaks(self) -> None:
        if leaks := [f"{name}=None" for name in self._leaking()]:
            raise ParameterError(
                f"{' and '.join(leaks)} would be computed from private rows, and no account can "
                "be charged for this computation; pass a public bound, range or label set"
            )

    def _n_features(self, X: Any, y: Any) -> int:
        if self.features is not None:
            return self.features.n_features_out_
        shape = X.shape if hasattr(X, "shape") else checked_numbers("X", X, DataError).shape
        if len(shape) != 2 or 0 in shape:
            dense_rows(self, X, y, dtype=np.float64)  # raises scikit-learn's error
            raise DataError(f"X must have rows and columns, not the shape {shape}")
        return int(shape[1])

    def _read(self, X: Any, y: Any, granted: Granted) -> tuple[Any, NDArray[Any]]:
        """Return the matrix of the used rows, or partitions of all rows, and the used labels."""
        numeric = "target_range" in self._public
        if in_parts(X):
            if (name := self._public[0]) in self._leaking():
                raise ParameterError(f"rows in partitions need a public {name}; pass a bound")
            if self.features is not None:
                raise ParameterError("features are for tables; transform each partition first")
            labels = labels_of(X, y)[granted.used]
            corner = np.broadcast_to(np.zeros(X.shape[1]), (labels.size, X.shape[1]))
            return X, dense_rows(self, corner, labels, y_numeric=numeric)[1]  # stores the columns
        options: Any = {"box": self._box, "order": "C", "y_numeric": numeric}
        options["dtype"] = np.float64 if self._box else (np.float64, np.float32)
        rows, labels = dense_rows(self, *granted.rows(X, y), **options)
        return rows, labels

    def _checked(
        self, X: Any, y: NDArray[Any], granted: Granted, domain: Domain
    ) -> tuple[Any, Floats]:
        labels = (domain.labels.numbers(y) - domain.middle) / domain.half
        if self._box:
            labels = np.clip(labels, -1.0, 1.0)
        if not in_parts(X):
            return domain.rows.rows(X), labels
        extra = int(getattr(domain.rows, "constant", 0.0) != 0.0)
        return PartedRows(X, granted.used, domain.rows.rows, extra).fetched(), labels

    def _guarantee(
        self, granted: Granted, plan: Perturbation, domain: Domain, source: RandomSource
    ) -> Guarantee:
        places = [
            f"VIOLATED: {name} was computed from the private rows"
            if getattr(self, name) is None
            else part.assumption
            for name, part in zip(self._public, (domain.rows, domain.labels), strict=True)
        ]
        epsilon = granted.spread(plan.epsilon)
        profile = Profile("pure", epsilon, plan.delta)
        if plan.shift is not None:
            profile = Profile("gaussian", granted.spread(plan.shift))
        exceeding = []
        if (over := epsilon > granted.epsilon).any():
            factor = np.max(epsilon[over] / granted.epsilon[over])
            exceeding = [
                f"EXCEEDED: the privacy loss of {np.count_nonzero(over)} of {over.size} rows "
                f"exceeds their epsilon, by a factor of up to {factor:.3g}: calibration='noise' "
                "ignores the Jacobian's share"
            ]
        return Guarantee(
            epsilon=epsilon,
            delta=plan.delta,
            mechanism=f"{self._model} {plan.name}",
            accounting=plan.accounting,
            assumptions=(
                noise_assumption(source, any_noise=plan.noisy),
                *exceeding,
                *places,
                "neither epsilon nor any parameter depends on the data",
                *plan.assumptions,
                "only the coefficients are published, once",
            ),
            profile=profile,
        )
