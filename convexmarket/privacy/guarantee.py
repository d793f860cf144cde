"""Guarantees of releases, and the privacy-loss profiles that accounts compose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtri

from convexmarket.checks import check_choice, check_instance, checked_numbers, is_number
from convexmarket.display import Shown
from convexmarket.errors import ParameterError
from convexmarket.privacy.composition import gaussian_epsilon

__all__ = ["WEAK", "Guarantee", "Law", "Profile", "check_delta", "odds_in_words"]

Floats = NDArray[np.float64]
Texts = tuple[str, ...]
#: Families of privacy-loss distributions.
Law: TypeAlias = Literal["pure", "laplace", "gaussian"]

#: A larger epsilon causes a warning. At 10, a guess can be right with probability 99.995 %.
WEAK = 10.0
#: Smallest positive epsilon or shift that is stored for a row.
LEAST = float(np.finfo(np.float64).tiny)
#: Relative margin that covers the rounding errors of sums over a grid of losses.
GRID_SLACK = 1e-9


def check_delta(delta: Any, *, positive: bool = False, why: str = "") -> float:
    """Check that delta is a probability below one, and return delta."""
    if not is_number(delta) or not (0.0 <= delta < 1.0) or (positive and delta == 0.0):
        least = "strictly between 0 and 1" if positive else "at least 0 and below 1"
        raise ParameterError(f"delta must be {least}{why}, got {delta!r}; try 1e-6")
    return float(delta)


def _set_rows(owner: Any, name: str) -> Floats:
    rows = np.array(checked_numbers(name, getattr(owner, name))) + 0.0  # replaces -0.0 by 0.0
    if rows.ndim != 1 or not np.all(rows >= 0):
        raise ParameterError(f"{name} must be a list of nonnegative numbers, one per row")
    rows.setflags(write=False)
    object.__setattr__(owner, name, rows)
    return rows


@dataclass(frozen=True, eq=False)
class Profile:
    """A distribution that bounds the privacy loss of each row in a release.

    Parameters
    ----------
    law : {"pure", "laplace", "gaussian"}
        ``"pure"`` is the loss of randomised response, the largest for a given epsilon.
    shift : ndarray of shape (n_rows,)
        Epsilon of each row for ``"pure"``. Otherwise, the change of the answer when the row is
        replaced: its L1 norm divided by the scale of the noise for ``"laplace"``, and its Euclidean
        norm divided by the standard deviation for ``"gaussian"``. Zero for unused rows.
    failure : float, default 0.0
        Probability with which the privacy loss has no bound.

    Examples
    --------
    >>> from convexmarket.privacy import Guarantee
    >>> Guarantee.gaussian([0.1, 0.2], 1e-6).profile
    Profile(law='gaussian', shift=array([0.1, 0.2]), failure=0.0)
    """

    law: Law
    shift: Floats
    failure: float = 0.0

    def __post_init__(self) -> None:
        check_choice("law", self.law, Law)
        check_delta(self.failure)
        _set_rows(self, "shift")


@dataclass(frozen=True, eq=False)
class Guarantee(Shown):
    """The differential-privacy guarantee of a released object, with the assumptions.

    Parameters
    ----------
    epsilon : ndarray of shape (n_rows,)
        Guarantee of each row, in nats. If the row is replaced, the probability of any event
        increases by a factor of at most ``exp(epsilon)``, plus ``delta``.
    delta : float
        Probability with which the factor can be exceeded; 0 for pure differential privacy.
    mechanism, accounting : str
        Description of the release, and name of the bound that gives ``epsilon``.
    assumptions : tuple of str
        Conditions of the guarantee, one sentence each. A guarantee without assumptions is marked
        as declared by the user.
    profile : Profile, optional
        Loss distribution for the composition in accounts. The default is valid for every mechanism
        with this ``epsilon`` and ``delta``. The class methods set sharper profiles.

    Examples
    --------
    >>> print(Guarantee([0.5, 1.0], 0.0, "a sum", "exact", ("the noise is secret",)))
    ... # doctest: +NORMALIZE_WHITESPACE
    a sum: epsilon 0.5 to 1 in 2 rows, delta 0 (exact accounting, one row replaced).
    A reader who knows all other rows changes the odds between two values of a row at most
    2.72-fold, and guesses the right one with probability at most 73.1 % instead of 50 %.
    Assumptions:
    - the noise is secret
    >>> Guarantee([1.0], 0.0, "mine", "none", ())  # doctest: +NORMALIZE_WHITESPACE
    <Guarantee: mine: epsilon 1 in 1 row, delta 0 (none accounting, one row replaced;
    declared by the user, not audited).>
    """

    epsilon: Floats
    delta: float
    mechanism: str
    accounting: str
    assumptions: Texts
    profile: Profile = None  # type: ignore[assignment]  # set in __post_init__

    def __post_init__(self) -> None:
        epsilon = _set_rows(self, "epsilon")
        check_delta(self.delta)
        check_instance("assumptions", self.assumptions, (tuple, list), "texts")
        object.__setattr__(self, "assumptions", tuple(self.assumptions))
        for text in (self.mechanism, self.accounting, *self.assumptions):
            if not isinstance(text, str) or text.encode(errors="ignore").decode() != text:
                raise ParameterError(f"{text!r} cannot be stored as text; remove surrogates")
        if self.profile is None:
            object.__setattr__(self, "profile", Profile("pure", epsilon, self.delta))
        shift = self.profile.shift
        if shift.shape != epsilon.shape or np.any((shift > 0) != (epsilon > 0)):
            raise ParameterError(
                f"the profile has {shift.size} rows, and epsilon has {epsilon.size}; they must "
                "have equal lengths, and must be zero in the same rows"
            )

    @classmethod
    def pure(
        cls, epsilon: ArrayLike, mechanism: str = "a release", assumptions: Texts = ()
    ) -> Self:
        """Create the guarantee of a release with these epsilons, shape (n_rows,), and delta 0."""
        return cls(checked_numbers("epsilon", epsilon), 0.0, mechanism, "pure", assumptions)

    @classmethod
    def laplace(
        cls, shift: ArrayLike, mechanism: str = "a release", assumptions: Texts = ()
    ) -> Self:
        """Create the guarantee of Laplace noise with the shift of a :class:`Profile`."""
        profile = Profile("laplace", shift)  # type: ignore[arg-type]  # Profile converts the shift
        return cls(profile.shift, 0.0, mechanism, "laplace", assumptions, profile)

    @classmethod
    def gaussian(
        cls,
        shift: ArrayLike,
        delta: float = 1e-6,
        mechanism: str = "a release",
        assumptions: Texts = (),
    ) -> Self:
        """Create the guarantee of Gaussian noise with the shift of a :class:`Profile`.

        The epsilon is computed for this delta. Advanced composition uses only the shift.
        """
        profile = Profile("gaussian", shift)  # type: ignore[arg-type]  # Profile converts the shift
        epsilon = gaussian_epsilon(profile.shift, check_delta(delta, positive=True))
        epsilon = np.where(profile.shift > 0, np.maximum(epsilon, LEAST), 0.0)
        return cls(epsilon, delta, mechanism, "gaussian", assumptions, profile)

    @classmethod
    def from_losses(
        cls,
        losses: ArrayLike,
        probabilities: ArrayLike,
        n_rows: int,
        delta: float = 1e-6,
        mechanism: str = "a release",
        assumptions: Texts = (),
    ) -> Self:
        r"""Create a guarantee from the distribution of the privacy loss on a grid.

        Accounts treat the release as Gaussian noise whose trade-off curve bounds it from below.

        Parameters
        ----------
        losses, probabilities : array_like of shape (n_losses,)
            Increasing values of the loss :math:`\log P/Q`, rounded up to a grid, and their
            probabilities under P. The remaining probability belongs to an infinite loss. The
            distribution must bound the loss for both orders of the two data sets.
        n_rows : int
            Number of rows, all of which have this distribution.
        delta : float, default 1e-6
            The delta of the guarantee, at least the probability of an infinite loss.

        Raises
        ------
        ParameterError
            If the arguments do not describe a distribution with these properties.
        """
        loss = checked_numbers("losses", losses)
        mass = checked_numbers("probabilities", probabilities)
        infinite = 1.0 - float(mass.sum())
        infinite = 0.0 if abs(infinite) <= GRID_SLACK else infinite
        if (
            loss.ndim != 1
            or loss.shape != mass.shape
            or not (np.all(np.isfinite(loss)) and np.all(np.diff(loss) > 0))
            or not (np.all(mass >= 0) and np.any(mass[loss >= 0] > 0))
            or not 0.0 <= infinite <= check_delta(delta)
        ):
            raise ParameterError(
                "losses must be increasing, probabilities must be nonnegative with a sum of at "
                "most one, and a loss >= 0 must have positive probability. The probability of an "
                f"infinite loss, here {infinite:.3g}, must be at most delta = {delta:g}. Give the "
                "distribution of log(P/Q) under P"
            )
        power = np.cumsum(mass[::-1])[::-1][loss >= 0]  # power of threshold tests
        level = np.cumsum((mass * np.exp(-loss))[::-1])[::-1][loss >= 0]
        excess = power + infinite - delta
        used = excess > 0
        epsilon = np.log(excess[used] / level[used]).max(initial=LEAST) * (1.0 + GRID_SLACK)
        corners = (power < 1) & (level > 0)
        shift = (ndtri(power[corners]) - ndtri(level[corners])).max(initial=LEAST)
        shift = np.inf if np.any(power >= 1) else shift * (1.0 + GRID_SLACK)
        profile = Profile("gaussian", np.full(n_rows, shift), infinite)
        given = delta, mechanism, "privacy-loss distribution", assumptions
        return cls(np.full(n_rows, epsilon), *given, profile)

    def statement(self) -> str:
        """Return the guarantee and its assumptions as text, one assumption per line."""
        if not self.epsilon.size:
            return f"{self.mechanism}: no row is used, so the guarantee is empty."
        low, high = float(self.epsilon.min()), float(self.epsilon.max())
        span = f"{high:.6g}" if low == high else f"{low:.6g} to {high:.6g}"
        rows = "1 row" if self.epsilon.size == 1 else f"{self.epsilon.size} rows"
        declared = "" if self.assumptions else "; declared by the user, not audited"
        text = (
            f"{self.mechanism}: epsilon {span} in {rows}, delta {self.delta:g} ({self.accounting}"
            f" accounting, one row replaced{declared}).\n"
            f"A reader who knows all other rows {odds_in_words(high, self.delta)}."
        )
        return "\n- ".join([text + "\nAssumptions:" * bool(self.assumptions), *self.assumptions])

    __str__ = statement

    def __repr__(self) -> str:
        return f"<Guarantee: {self.statement().splitlines()[0]}>"

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Guarantee) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        profile = self.profile.law, self.profile.shift.tobytes(), self.profile.failure
        about = self.mechanism, self.accounting, self.assumptions
        return self.epsilon.tobytes(), float(self.delta), *about, *profile


def odds_in_words(epsilon: float, delta: float) -> str:
    """Describe in words how much a reader can learn about one row.

    See Kairouz, Oh and Viswanath, The Composition Theorem for Differential Privacy, Theorem 2.1.
    """
    if np.isinf(epsilon):
        return "can learn the value of a row with certainty: no noise protects the row"
    chance = expit(epsilon) + delta * expit(-epsilon)
    limit = f"at most {100.0 * chance:.{1 if chance < 0.999 else 3}f} %"
    limit = limit if chance < 0.99999 else "close to 1"
    factor = f"e^{epsilon:.4g}"
    if epsilon <= WEAK:
        factor = f"{np.exp(epsilon):.3g}" if epsilon < 5.0 else f"{np.exp(epsilon):,.0f}"
    except_for = f" (except with probability {delta:g})" if delta > 0 else ""
    return (
        f"changes the odds between two values of a row at most {factor}-fold{except_for}, and"
        f" guesses the right one with probability {limit} instead of 50 %"
    )
