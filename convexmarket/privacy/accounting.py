r"""What objective perturbation guarantees to each seller, as a formula.

The released model solves

.. math:: \min_w \sum_i a_i \log(1+e^{-y_i w^\top x_i}) + b'^\top w
          + \tfrac{\Lambda}{2}\|w\|^2, \qquad b' = \frac{2R}{\eta} b,

with :math:`\|x_i\| \le R` and :math:`b` of density proportional to :math:`e^{-\|b\|}`. Replace
seller i's row by another one. At a given output w, the noise that explains it moves by
:math:`a_i(p_1 y_1 x_1 - p_2 y_2 x_2)`, where :math:`p = 1/(1+e^{y w^\top x})`, and the Jacobian
changes by a term of rank one on either side. Three bounds on the privacy loss follow, each larger
than the one before, with :math:`\kappa_i = a_i R^2/\Lambda`:

``"joint"``
    :math:`\max_{0 \le p \le 1} \tfrac12 a_i\eta(1+p) + \log(1 + \kappa_i p(1-p))`.
    The shift and the Jacobian depend on the same p: where the shift is largest, p = 1, the
    logistic curve is flat and the Jacobian does not move. As soon as
    :math:`\Lambda\eta \ge 2R^2` the maximum is at p = 1, so the guarantee is exactly
    :math:`a_i\eta` and nothing is added to what was sold.
``"tight"``
    :math:`a_i\eta + \log(1 + \kappa_i/4)`: the two parts bounded apart, with the matrix
    determinant lemma and the largest logistic curvature, 1/4.
``"paper"``
    :math:`a_i\eta + 2\log(1 + R^2 a_{\max}/\Lambda)`, with :math:`a_{\max} = k/m`:
    Proposition II.2 of Anjarlekar, Etesami and Srikant, generalised to R other than one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from convexmarket.errors import ParameterError

__all__ = [
    "Accounting",
    "Guarantee",
    "calibrate_eta",
    "check_weights",
    "objective_perturbation_guarantee",
]

Accounting: TypeAlias = Literal["joint", "tight", "paper"]

WEIGHT_SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Guarantee:
    """The differential privacy that a released object carries, and what it rests on.

    Parameters
    ----------
    epsilon : ndarray of shape (n_sellers,)
        Guarantee of each row, in nats: replacing that row changes the probability of no event by
        more than a factor ``exp(epsilon)`` plus ``delta``. Kept as a read-only copy.
    delta : float
        Probability with which the factor may be exceeded; 0 for pure differential privacy.
    mechanism : str
        What was released, and how.
    accounting : str
        Name of the bound that gives ``epsilon``.
    assumptions : tuple of str
        What has to hold for the guarantee to hold, one sentence each.
    """

    epsilon: NDArray[np.float64]
    delta: float
    mechanism: str
    accounting: str
    assumptions: tuple[str, ...]

    def __post_init__(self) -> None:
        epsilon = np.array(self.epsilon, dtype=np.float64)
        epsilon.setflags(write=False)
        object.__setattr__(self, "epsilon", epsilon)

    def statement(self) -> str:
        """Return the guarantee and its assumptions in words, one assumption per line."""
        low, high = float(self.epsilon.min()), float(self.epsilon.max())
        span = f"{high:.6g}" if low == high else f"{low:.6g} to {high:.6g}"
        promise = (
            f"{self.mechanism}: epsilon of each of {self.epsilon.size} rows {span},"
            f" delta {self.delta:g} ({self.accounting} accounting, one row replaced)."
        )
        return "\n".join([promise, "This rests on:", *(f"- {a}" for a in self.assumptions)])

    def __str__(self) -> str:
        return self.statement()


def check_weights(weights: ArrayLike, n_rows: int | None = None) -> NDArray[np.float64]:
    """Return the weights as an array, after checking that they are a distribution over rows.

    Parameters
    ----------
    weights : array_like of shape (n_rows,)
        Nonnegative, finite, summing to one within 1e-6.
    n_rows : int, optional
        How many there must be.

    Returns
    -------
    ndarray of shape (n_rows,)

    Raises
    ------
    ParameterError
        If a weight is negative or not finite, if they do not sum to one, or if their number is
        wrong.
    """
    array = np.asarray(weights, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ParameterError(f"weights must be a nonempty vector, not of shape {array.shape}.")
    if n_rows is not None and array.size != n_rows:
        raise ParameterError(f"weights has {array.size} entries for {n_rows} rows of data.")
    if not np.all(np.isfinite(array)) or np.any(array < 0):
        raise ParameterError("weights must be finite and nonnegative.")
    if abs(array.sum() - 1.0) > WEIGHT_SUM_TOLERANCE:
        raise ParameterError(
            f"weights must sum to one, but sum to {array.sum():.9g}: divide them by their sum."
        )
    return array


def objective_perturbation_guarantee(
    weights: ArrayLike,
    eta: float,
    regularization: float,
    data_norm: float = 1.0,
    accounting: Accounting = "tight",
    cap: float | None = None,
) -> NDArray[np.float64]:
    """Guarantee of each seller, Jacobian included.

    Parameters
    ----------
    weights : array_like of shape (n_sellers,)
        Weights a of the loss: nonnegative, summing to one, chosen without looking at the data.
    eta : float
        Positive; sets the noise, of norm Gamma(n_features) times ``2 * data_norm / eta``.
        Infinity means no noise.
    regularization : float
        Lambda, positive.
    data_norm : float, default 1.0
        R, a public bound on the Euclidean norm of every row.
    accounting : {"joint", "tight", "paper"}, default "tight"
        Which bound; see the module's documentation. ``"joint"`` is the smallest.
    cap : float, optional
        k, where no weight may exceed k / n_sellers; only the paper's formula uses it. Without it
        the largest weight takes the place of k / n_sellers.

    Returns
    -------
    ndarray of shape (n_sellers,)
        Total epsilon, in nats. Under ``"joint"`` and ``"tight"`` a weight of zero has guarantee
        zero, because that row is never used; the paper's formula adds its Delta to every row.

    Raises
    ------
    ParameterError
        If an argument is out of its range, or a weight exceeds ``cap / n_sellers``.

    Examples
    --------
    >>> objective_perturbation_guarantee([0.5, 0.5], eta=2.0, regularization=0.125).round(6)
    array([1.693147, 1.693147])
    >>> objective_perturbation_guarantee([0.5, 0.5], 2.0, 1.0, accounting="joint")
    array([1., 1.])
    """
    array = check_weights(weights)
    curvature = _curvature(eta, regularization, data_norm, accounting)
    if accounting == "joint":
        return _joint_guarantee(array, eta, curvature)
    extra = _extra(array, curvature, accounting, cap)
    return _sold(array, eta) + extra


def calibrate_eta(
    weights: ArrayLike,
    eta: float,
    regularization: float,
    data_norm: float = 1.0,
    accounting: Accounting = "tight",
    cap: float | None = None,
) -> float:
    """Largest ``eta`` for the noise such that every total is at most what was sold.

    What was sold to seller i is ``weights[i] * eta``. More noise, hence a smaller eta, makes room
    for the Jacobian's share. Whatever the bound, that share grows more slowly than the weight, so
    the seller with the smallest positive weight decides.

    Parameters
    ----------
    weights, eta, regularization, data_norm, accounting, cap
        As for :func:`objective_perturbation_guarantee`; ``eta`` is the one that was sold.

    Returns
    -------
    float
        At most ``eta``. Under ``"joint"`` it is ``eta`` itself when ``regularization * eta`` is at
        least ``2 * data_norm**2``. Under ``"tight"`` it is never less than
        ``eta - data_norm**2 / (4 * regularization)``.

    Raises
    ------
    ParameterError
        If no positive value does, or an argument is out of its range.

    Examples
    --------
    >>> weights = [0.5, 0.5]
    >>> calibrated = calibrate_eta(weights, eta=8.0, regularization=0.125)
    >>> objective_perturbation_guarantee(weights, calibrated, 0.125).round(6)
    array([4., 4.])
    """
    array = check_weights(weights)
    curvature = _curvature(eta, regularization, data_norm, accounting)
    if np.isinf(eta):
        return eta
    smallest = array[array > 0].min(keepdims=True)
    if accounting == "joint":
        calibrated = _calibrate_joint(smallest, eta, curvature)
    else:
        extra = _extra(array, curvature, accounting, cap)[array > 0]
        with np.errstate(over="ignore"):  # a tiny weight leaves no room, and is refused below
            calibrated = eta - float(np.max(extra / array[array > 0]))
    if calibrated <= 0:
        raise ParameterError(
            f"eta = {eta:g} leaves no room for the Jacobian's share of the privacy loss at"
            f" regularization = {regularization:g} and data_norm = {data_norm:g}: buy more privacy"
            " (a larger eta), use a larger regularization, or accept calibration='noise', whose"
            " total exceeds what was sold."
        )
    # The totals are rounded; a few units in the last place keep them below what was sold.
    return calibrated if calibrated == eta else calibrated - 8 * np.spacing(eta)


def _curvature(eta: float, regularization: float, data_norm: float, accounting: str) -> float:
    """Check the scalars and return R^2 / Lambda."""
    if not eta > 0:
        raise ParameterError(f"eta must be positive (infinity means no noise), not {eta!r}.")
    for name, value in (("regularization", regularization), ("data_norm", data_norm)):
        if not (np.isfinite(value) and value > 0):
            raise ParameterError(f"{name} must be positive and finite, not {value!r}.")
    if accounting not in get_args(Accounting):
        raise ParameterError(
            f"accounting must be one of {get_args(Accounting)}, not {accounting!r}."
        )
    return data_norm**2 / regularization


def _sold(weights: NDArray[np.float64], eta: float) -> NDArray[np.float64]:
    """Return a * eta, with 0 * infinity read as 0: a row that is not used loses nothing."""
    return np.multiply(weights, eta, out=np.zeros_like(weights), where=weights > 0)


def _extra(
    weights: NDArray[np.float64], curvature: float, accounting: str, cap: float | None
) -> NDArray[np.float64]:
    """Return Delta, what is added to ``weights * eta``, under the "tight" and "paper" bounds."""
    if accounting == "tight":
        return np.log1p(curvature * weights / 4.0)
    largest = float(weights.max())
    if cap is not None:
        if not cap / weights.size >= largest * (1.0 - 1e-9):
            raise ParameterError(
                f"a weight is {largest:.6g}, above cap / n_sellers = {cap / weights.size:.6g}."
            )
        largest = cap / weights.size
    return np.full(weights.size, 2.0 * np.log1p(curvature * largest))


def _joint_guarantee(
    weights: NDArray[np.float64], eta: float, curvature: float
) -> NDArray[np.float64]:
    """Maximise the "joint" bound over p, in closed form: its derivative is a quadratic in p."""
    sold = _sold(weights, eta)
    if np.isinf(eta):
        return sold
    half = sold / 2.0
    stretch = half + 2.0 * eta / curvature
    p = np.minimum(1.0, 0.5 + stretch / (2.0 * (np.sqrt(4.0 + half * stretch) + 2.0)))
    return half * (1.0 + p) + np.log1p(curvature * weights * p * (1.0 - p))


def _calibrate_joint(smallest: NDArray[np.float64], eta: float, curvature: float) -> float:
    """Solve the "joint" bound for eta at the smallest positive weight; 0 if there is no room."""
    sold = float(smallest[0] * eta)

    def excess(candidate: float) -> float:
        return float(_joint_guarantee(smallest, candidate, curvature)[0]) - sold

    if excess(eta) <= 0:
        return eta
    if excess(0.0) >= 0:
        return 0.0
    return float(brentq(excess, 0.0, eta, xtol=2 * np.spacing(eta)))
