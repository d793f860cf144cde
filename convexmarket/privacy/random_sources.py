"""Sources of randomness for private releases. Noise from a known seed does not protect the rows."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from randomgen import ChaCha
from scipy.special import gammaln, xlogy

from convexmarket.checks import check_count, warn_user
from convexmarket.errors import ParameterError, PrivacyLeakWarning

__all__ = ["RandomSource", "Simulation", "gamma_sphere_log_density", "gamma_sphere_noise"]
__all__ += ["noise_assumption", "resolve_generator", "secure_generator", "warn_of_plain_noise"]

Seed: TypeAlias = (
    int | np.integer | np.random.Generator | np.random.SeedSequence | np.random.RandomState
)


@dataclass(frozen=True)
class Simulation:
    """A seed for experiments with reproducible noise, which does not protect the rows.

    Parameters
    ----------
    seed : int, SeedSequence, Generator or RandomState
        See :func:`numpy.random.default_rng`. The state of a ``Generator`` changes with every use.

    Examples
    --------
    >>> bool(resolve_generator(Simulation(1)).random() == resolve_generator(Simulation(1)).random())
    True
    """

    seed: Seed

    def __post_init__(self) -> None:
        _check_seed("seed", self.seed)


RandomSource: TypeAlias = Seed | Simulation | None


def secure_generator() -> np.random.Generator:
    """Return a ChaCha20 generator with a fresh 256-bit key for a single use."""
    return np.random.Generator(ChaCha(key=secrets.randbits(256), rounds=20))


def resolve_generator(
    random_state: RandomSource = None, *, protective: bool = True
) -> np.random.Generator:
    """Return the generator for a ``random_state``.

    Parameters
    ----------
    random_state : None, Simulation, int, SeedSequence, Generator or RandomState
        If ``None``, a fresh :func:`secure_generator` is returned. The seed of a :class:`Simulation`
        is used like any other seed.
    protective : bool, default True
        Whether the noise protects rows.

    Returns
    -------
    numpy.random.Generator

    Warns
    -----
    PrivacyLeakWarning
        If a seed or generator of protective noise is given outside a simulation.

    Examples
    --------
    >>> bool(0 <= resolve_generator(Simulation(7)).random() < 1)
    True
    """
    seed = random_state.seed if isinstance(random_state, Simulation) else random_state
    if seed is None:
        return secure_generator()
    _check_seed("random_state", seed)
    if protective and seed is random_state:
        warn_user(
            f"random_state is of type {type(seed).__name__}, so a reader can subtract the noise: "
            "omit random_state, or, for an experiment, pass"
            " convexmarket.privacy.Simulation(random_state).",
            PrivacyLeakWarning,
        )
    if isinstance(seed, np.random.RandomState):
        return np.random.default_rng(seed.randint(0, 2**32, size=8, dtype=np.uint64))
    return np.random.default_rng(seed)


def _check_seed(name: str, seed: object) -> None:
    negative = isinstance(seed, int | np.integer) and seed < 0
    if isinstance(seed, bool) or not isinstance(seed, Seed) or negative:
        raise ParameterError(
            f"{name} must be None, an integer >= 0, a SeedSequence, a Generator, a RandomState or "
            f"a Simulation of one of them, got {seed!r}"
        )


def warn_of_plain_noise(argument: str, random_state: RandomSource) -> None:
    """Warn that noise is added in floating point, except in a simulation."""
    if not isinstance(random_state, Simulation):
        warn_user(
            f"with {argument}=None, noise is drawn in plain floating point, and its last digits "
            f"can reveal rows at any epsilon. Omit {argument} for exact noise, or, for an "
            "experiment, pass random_state=convexmarket.privacy.Simulation(seed).",
            PrivacyLeakWarning,
        )


def noise_assumption(random_state: RandomSource, *, any_noise: bool = True) -> str:
    """Return the assumption of a guarantee about the source of the noise.

    Parameters
    ----------
    random_state : None, Simulation or another source
    any_noise : bool, default True
        Whether any noise is added.

    Returns
    -------
    str

    Examples
    --------
    >>> noise_assumption(Simulation(0))
    'SIMULATION: the seed of the noise is known, so no row is protected'
    """
    if not any_noise:
        return "no noise was added: rows with a positive weight have no guarantee"
    if random_state is None:
        return "the noise uses a fresh seed from the operating system, which is not stored"
    if isinstance(random_state, Simulation):
        return "SIMULATION: the seed of the noise is known, so no row is protected"
    return "random_state is secret, and is not used for another release"


def gamma_sphere_noise(n_features: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""Draw a vector whose density is proportional to :math:`\exp(-\|b\|)`.

    The norm follows the Gamma distribution with shape ``n_features``, and the direction is uniform
    (Anjarlekar, Etesami and Srikant, Algorithm 1).
    """
    check_count("n_features", n_features)
    direction = rng.standard_normal(n_features)
    return rng.gamma(n_features) * direction / np.linalg.norm(direction)


def gamma_sphere_log_density(norm: float, n_features: int) -> float:
    """Compute the log density of :func:`gamma_sphere_noise` at vectors of this norm."""
    # logarithm of the surface area of the unit sphere
    log_area = np.log(2.0) + xlogy(n_features / 2.0, np.pi) - gammaln(n_features / 2.0)
    return float(-norm - log_area - gammaln(n_features))
