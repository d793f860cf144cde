r"""Linear models by objective perturbation, under a guarantee chosen seller by seller.

The released model is the exact minimiser of

.. math:: \sum_i a_i \ell(w^\top x_i; y_i) + b'^\top w + \tfrac{\Lambda}{2}\|w\|^2,

with :math:`b' = (2LR/\eta)\,b`, :math:`b` of density proportional to :math:`e^{-\|b\|}`,
:math:`\|x_i\| \le R`, and a loss that is convex, L-Lipschitz and of bounded curvature (Algorithm 1
and Eq. 12 of Anjarlekar, Etesami and Srikant, who take the logistic loss and R = 1). Here is what
all such estimators do; each brings a loss and says which labels are public. What the release
guarantees is the business of :mod:`convexmarket.privacy.accounting`, the noise and the minimiser
that of :mod:`convexmarket.learners.perturbed`, and what to do about its being found only nearly
that of :func:`~convexmarket.privacy.accounting.default_minimum_epsilon`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from convexmarket.arguments import (
    aligned,
    check_choice,
    check_scales,
    is_number,
)
from convexmarket.data.features import PublicFeatures
from convexmarket.errors import ParameterError
from convexmarket.learners.granted import Granted, dense_rows
from convexmarket.learners.labels import binary_signs, check_classes
from convexmarket.learners.losses import Loss
from convexmarket.learners.minimiser import Matrix, Vector
from convexmarket.learners.norms import bounded_rows
from convexmarket.learners.parted import (
    PartedRows,
    in_parts,
    labels_of,
    within_norm,
)
from convexmarket.learners.perturbed import perturbed_minimum
from convexmarket.privacy.accountant import Account
from convexmarket.privacy.accounting import (
    Accounting,
    calibrate_eta,
    default_minimum_epsilon,
    objective_perturbation_guarantee,
)
from convexmarket.privacy.active import admit, names_of
from convexmarket.privacy.guarantee import Guarantee
from convexmarket.privacy.lattice import lattice_blur
from convexmarket.privacy.noise import (
    RandomSource,
    noise_assumption,
    resolve_generator,
    warn_of_plain_noise,
)

__all__ = ["Calibration", "ObjectiveClassifier", "ObjectiveRelease"]

Calibration = Literal["total", "noise"]

#: By default the second noise costs no row more than this share of what it granted, ...
LARGEST_SHARE = 0.03
#: ... as rows for whom it would are left out, unless they weigh more than this share of the mean.
LEAST_OF_MEAN = 0.01

#: Relative; eta is this much below what was granted in all, so that its roundings do not exceed it.
BELOW = 2.0**-50


class ObjectiveRelease(BaseEstimator):
    """What every estimator here shares: the fit, the guarantee, the account."""

    regularization: float
    data_norm: float | None
    calibration: Calibration
    tol: float
    minimum_epsilon: Literal["auto"] | float | None
    features: PublicFeatures | None
    epsilon: ArrayLike | None

    #: What it is called in a guarantee, and which parameter holds the public labels.
    _mechanism: ClassVar[str]
    _domain_name: ClassVar[str]

    @abstractmethod
    def _loss(self) -> Loss:
        """Return the loss, after checking its parameters."""

    @abstractmethod
    def _domain(self) -> NDArray[Any] | None:
        """Return the public labels, or None where they are read from the rows."""

    @abstractmethod
    def _targets(self, y: NDArray[Any]) -> tuple[NDArray[Any], Vector]:
        """Return the public labels, and those of the rows as the loss takes them."""

    @abstractmethod
    def _keep(self, domain: NDArray[Any]) -> None:
        """Keep what a fitted model says of the public labels."""

    @abstractmethod
    def _public_labels(self, domain: NDArray[Any]) -> str:
        """Say what is assumed of the labels."""

    def _accounting(self) -> tuple[Accounting, float | None]:
        """Return which bound on the privacy loss is reported, and the cap that it reads."""
        return "general", None

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
        """Draw the noise and release the minimiser.

        Parameters
        ----------
        X : array_like of shape (n_sellers, n_features)
            Rows of Euclidean norm at most ``data_norm``. Rows in partitions
            (:func:`convexmarket.partitions.rows`) stay there; at most 100,000 are fetched.
        y : array_like of shape (n_sellers,)
            Labels from the public set or range.
        epsilon : array_like of shape (n_sellers,), or float
            What each row granted, or one number for all: nonnegative, in nats, chosen without
            looking at the data. The constructor's by default. Rows are weighted in proportion. One
            that granted 0 is not used: it is dropped before anything looks at what it holds.
            Infinity is a row that asks for nothing: only such rows are used then, without noise.
        rows : array_like of int, shape (n_sellers,), optional
            Positions of the rows in the account; all of its rows by default.
        accountant : Account, optional
            Charged with the guarantee, a :class:`~convexmarket.PrivacyAccountant` for instance; by
            default the accounts that are open, :func:`convexmarket.privacy.account`. It is asked
            before the data are looked at, but for their number of rows, and charged before the
            noise is drawn. A fit that fails later stays charged: that it failed, and how long it
            took, depends on the rows, and free retries could choose among noises by
            it.
        random_state : None or Simulation, default None
            Source of the noise; ``None`` takes a fresh seed from the operating system. It is not
            kept. A :class:`~convexmarket.privacy.Simulation` draws the same noise again, and
            protects nobody. A seed by itself raises a
            :class:`~convexmarket.errors.PrivacyLeakWarning`.

        Returns
        -------
        self

        Raises
        ------
        ParameterError
            If a parameter or epsilon is out of range, no amount of noise keeps what was granted,
            or an accountant is given where what the guarantee rests on would be read from private
            data.
        BudgetExceededError
            If a row cannot pay. Nothing was charged then, and no row looked at.
        DataError
            If the data are malformed or sparse, a row is longer than ``data_norm`` or a label
            unknown.
        SolverError
            If the gradient norm ``tol`` is not reached; nothing is released then.
        """
        default = self.epsilon if epsilon is None else epsilon
        X, y, epsilon, rows = aligned(X=X, y=y, epsilon=default, rows=rows)
        self._check_parameters()
        granted = self._granted(X, epsilon)
        names = names_of(X)
        charge: Callable[[], None] | None = None
        if not self._reads_rows or accountant is not None or rows is not None:
            promised = self._promise(granted, random_state)
            charge = admit(promised, accountant, rows, names=names, random_state=random_state)
        matrix, data_norm, domain, targets = self._checked(X, y, granted)
        noise_eta, guarantee = self._account(granted, data_norm, domain, random_state)
        if self.minimum_epsilon is None and np.isfinite(noise_eta):
            warn_of_plain_noise("minimum_epsilon", random_state)
        rng = resolve_generator(random_state)
        if charge is None:
            charge = admit(guarantee, names=names, random_state=random_state)
        charge()
        weights = granted.weights()
        if not (kept := weights > 0).all():  # a share can round to zero
            matrix, targets, weights = matrix[kept], targets[kept], weights[kept]
        blur = self._blur(granted, matrix.shape[1])
        coef, gradient_norm = perturbed_minimum(
            matrix,
            targets,
            weights,
            noise_eta,
            self.regularization,
            data_norm=data_norm,
            tol=self.tol,
            blur=blur,
            rng=rng,
            loss=self._loss(),
        )
        # Only now, so that a failed fit leaves no half of a model behind.
        self._keep(domain)
        self.data_norm_, self.eta_ = data_norm, noise_eta
        self.guarantee_, self.epsilon_ = guarantee, guarantee.epsilon
        self.coef_, self.intercept_ = coef, 0.0
        self.gradient_norm_ = gradient_norm if blur is None else self.tol
        self.rounding_ = None if blur is None else blur[0]
        self.minimum_epsilon_ = self._paid(granted)
        return self

    def promise(self, epsilon: ArrayLike) -> Guarantee:
        """Return the guarantee that a fit would carry, from public quantities alone.

        Parameters
        ----------
        epsilon : array_like of shape (n_sellers,)
            What each row would grant.

        Raises
        ------
        ParameterError
            As ``fit`` would, or if what it rests on is to be read from private rows.
        """
        self._check_parameters()
        return self._promise(self._granted(np.asarray(epsilon), epsilon), None)

    def _checked(
        self, X: Any, y: Any, granted: Granted
    ) -> tuple[Matrix | PartedRows, float, NDArray[Any], Vector]:
        """Return the rows that are used, their bound, the public labels and their own."""
        if not in_parts(X):
            rows = granted.rows(X, y)
            matrix, labels = dense_rows(self, *rows, dtype=(np.float64, np.float32), order="C")
            known = self._targets(labels)
            return *bounded_rows(matrix, self.data_norm), *known
        if self.data_norm is None or self.features is not None:
            raise ParameterError(
                "rows in partitions need a public data_norm, and no features, which are for "
                "tables; pass a bound, and transform each partition before"
            )
        labels = labels_of(X, y)
        dense_rows(self, np.zeros((1, X.shape[1])))  # notes the columns
        known = self._targets(labels[granted.used])
        bound = float(self.data_norm)
        parts = PartedRows(X, granted.used, partial(within_norm, bound)).fetched()
        return parts, bound, *known

    def _margins(self, X: ArrayLike) -> Vector:
        check_is_fitted(self)
        rows = dense_rows(self, X, dtype=np.float64, reset=False)
        return np.asarray(rows @ self.coef_ + self.intercept_)

    def _check_parameters(self) -> None:
        check_choice("calibration", self.calibration, Calibration)
        if self.data_norm is not None:
            check_scales(data_norm=self.data_norm)
        check_scales(regularization=self.regularization)
        if not (is_number(self.tol) and self.tol > 0):
            raise ParameterError(f"tol must be positive, got {self.tol!r}")
        if self.minimum_epsilon is not None:
            check_scales(tol=self.tol)
            if isinstance(self.minimum_epsilon, str) and self.minimum_epsilon != "auto":
                raise ParameterError(
                    "minimum_epsilon must be 'auto', a number or None, got "
                    f"{self.minimum_epsilon!r}"
                )
            if self.minimum_epsilon != "auto":
                check_scales(minimum_epsilon=self.minimum_epsilon)
        self._loss()

    @property
    def _reads_rows(self) -> bool:
        """Whether what the guarantee rests on is read from the private rows."""
        return self.data_norm is None or self._domain() is None

    def _promise(self, granted: Granted, random_state: RandomSource) -> Guarantee:
        if self.data_norm is None or self._domain() is None:
            raise ParameterError(
                f"data_norm=None and {self._domain_name}=None are read from the private rows, so "
                "no guarantee can be promised or charged to an accountant; pass a public bound "
                "and public labels"
            )
        return self._account(granted, self.data_norm, self._domain(), random_state)[1]

    def _account(
        self,
        granted: Granted,
        data_norm: float,
        domain: Any,
        random_state: RandomSource,
    ) -> tuple[float, Guarantee]:
        """Return the eta of the noise and the guarantee that follows from it."""
        paid = self._paid(granted)
        accounting, cap = self._accounting()
        curvature = self._loss().curvature
        arguments = (self.regularization, data_norm, accounting, cap, paid, curvature)
        mechanism = f"{self._mechanism} by objective perturbation"
        weights = granted.spread(granted.weights())
        eta = float(granted.positive.sum())
        if self.calibration == "total":
            eta = calibrate_eta(weights, eta * (1.0 - BELOW), *arguments)
        if np.isfinite(eta):
            mechanism += ", exact noise on a lattice" if paid else ", noise in plain floating point"
        total = objective_perturbation_guarantee(weights, eta, *arguments)
        total = np.where(weights > 0, total, 0.0)
        guarantee = Guarantee(
            epsilon=total,
            delta=0.0,
            mechanism=mechanism,
            accounting=accounting,
            assumptions=(
                noise_assumption(random_state, any_noise=bool(np.isfinite(eta))),
                *_exceeding(total, granted.epsilon),
                *self._assumptions(paid, data_norm, domain),
            ),
        )
        return eta, guarantee

    def _granted(self, X: ArrayLike, epsilon: ArrayLike | None) -> Granted:
        """Return what each row granted, without those for whom exact noise is too dear."""
        granted = Granted.of(X, epsilon, self.epsilon)
        if self.minimum_epsilon == "auto" and np.isfinite(granted.epsilon).all():
            least = LEAST_OF_MEAN / granted.positive.size
            return granted.above(min(self.tol / LARGEST_SHARE**2, least))
        return granted

    def _paid(self, granted: Granted) -> float:
        """Return what each row pays for the second noise; 0 where there is none."""
        if self.minimum_epsilon is None or np.isinf(granted.epsilon).any():
            return 0.0
        if isinstance(self.minimum_epsilon, str):
            return default_minimum_epsilon(granted.positive, self.tol)
        return self.minimum_epsilon

    def _blur(self, granted: Granted, n_features: int) -> tuple[float, int] | None:
        """Return step and scale of the second noise."""
        paid = self._paid(granted)
        return lattice_blur(self.tol / self.regularization, n_features, paid) if paid else None

    def _assumptions(self, paid: float, data_norm: float, domain: Any) -> tuple[str, ...]:
        public_norm = f"every row's norm is at most {data_norm:g}, a bound that is public"
        if self.data_norm is None:
            public_norm = "VIOLATED: the bound on the norms was computed from the private rows"
        return (
            public_norm,
            self._public_labels(domain),
            "epsilon and all parameters were chosen without looking at the data",
            *self._nearness(paid),
            "only the coefficients are published, once",
        )

    def _nearness(self, paid: float) -> tuple[str, ...]:
        """Say what is assumed of the solver and of floating point."""
        reached = f"the gradient norm is at most {self.tol:g}"
        distance = self.tol / self.regularization
        if not paid:
            return (
                "the coefficients are the exact minimiser, or are read no finer than"
                f" {2.0 * distance:.3g}: {reached}, the distance at most {distance:.3g}",
                "noise and coefficients are real numbers: they are computed in double precision",
            )
        return (
            f"{reached} where the solver stopped, and a second noise, exact on a lattice, hides the"
            f" distance of at most {distance:.3g} from the minimiser, for {paid:.3g} of each"
            " row's epsilon",
            "arithmetic is that of IEEE 754, and the C library's log1p, sin, cos and hypot are"
            " right to two units in the last place",
            "with one row replaced the solver would have got there as well: a fit that fails"
            " releases nothing, but that it failed is not covered",
        )


class ObjectiveClassifier(ClassifierMixin, ObjectiveRelease):
    """Of two labels, from a public set."""

    classes: tuple[Any, Any] | None
    _domain_name = "classes"

    def decision_function(self, X: ArrayLike) -> Vector:
        """Return the margin ``w'x`` of each row; positive means the second class.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._margins(X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label of each row.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        margins = self.decision_function(X)
        return self.classes_[(margins > 0).astype(np.intp)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _domain(self) -> NDArray[Any] | None:
        check_classes(self.classes)
        return None if self.classes is None else np.asarray(self.classes)

    def _targets(self, y: NDArray[Any]) -> tuple[NDArray[Any], Vector]:
        return binary_signs(y, self.classes)

    def _keep(self, domain: NDArray[Any]) -> None:
        self.classes_ = domain

    def _public_labels(self, domain: NDArray[Any]) -> str:
        if self.classes is None:
            return "VIOLATED: the label set was inferred from the private labels"
        return f"the label set {tuple(domain.tolist())} is public"

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_classes(self.classes)


def _exceeding(total: Vector, granted: Vector) -> tuple[str, ...]:
    """Say by how much a total exceeds what was granted, as under ``calibration="noise"``."""
    over = total > granted
    if not over.any():
        return ()
    return (
        f"EXCEEDED: {np.count_nonzero(over)} of {total.size} rows lose more than they granted, up"
        f" to {np.max(total[over] / granted[over]):.3g} times as much: calibration='noise' leaves"
        " out the Jacobian's share",
    )
