"""Where the randomness of a private release comes from.

A mechanism asks :func:`resolve_generator` for a generator and a sampler of this module for its
noise. Nothing here knows which model is being trained.

Where no seed is passed, the generator is NumPy's over the stream cipher ChaCha20 of the package
randomgen. Its ``AESCounter`` has a key of half the length, a processor's ``RDRAND`` has to be
trusted blindly and is not everywhere, and a binding of our own would be one more to maintain.
"""

from __future__ import annotations

import secrets
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from randomgen import ChaCha
from scipy.special import gammaln, xlogy

from convexmarket.errors import ParameterError

__all__ = [
    "RandomSource",
    "gamma_sphere_log_density",
    "gamma_sphere_noise",
    "resolve_generator",
    "secure_generator",
]

RandomSource: TypeAlias = (
    int | np.integer | np.random.Generator | np.random.SeedSequence | np.random.RandomState | None
)

CHACHA_ROUNDS = 20  # of the cipher as it is standardised


def secure_generator() -> np.random.Generator:
    """Return a generator over ChaCha20 with a fresh key from the operating system.

    The key is 256 bits of :mod:`secrets`, used as they are. Who sees any amount of the stream, and
    not the key, can predict no more of it than who can break the cipher. Make one for each use: the
    key stays in the memory of the process, and a generator that was made before a fork goes on
    with the same stream in both processes.

    Examples
    --------
    >>> type(secure_generator().bit_generator).__name__
    'ChaCha'
    >>> secure_generator().random() == secure_generator().random()
    False
    """
    return np.random.Generator(ChaCha(key=secrets.randbits(256), rounds=CHACHA_ROUNDS))


def resolve_generator(random_state: RandomSource = None) -> np.random.Generator:
    """Turn what a user passes as ``random_state`` into a generator.

    Parameters
    ----------
    random_state : None, int, SeedSequence, Generator or RandomState
        ``None`` takes a fresh :func:`secure_generator`. A ``Generator`` is used as it is, and
        advances. A ``RandomState`` (what scikit-learn hands around) supplies the seed, and
        advances.

    Returns
    -------
    numpy.random.Generator

    Raises
    ------
    ParameterError
        If ``random_state`` is none of these, or is a negative integer.
    """
    if random_state is None:
        return secure_generator()
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**32, size=8, dtype=np.uint64))
    kinds = (int, np.integer, np.random.Generator, np.random.SeedSequence)
    if isinstance(random_state, bool) or not isinstance(random_state, kinds):
        raise ParameterError(
            "random_state must be None, an integer, a SeedSequence, a Generator or a RandomState,"
            f" not {random_state!r}."
        )
    if isinstance(random_state, (int, np.integer)) and random_state < 0:
        raise ParameterError(f"random_state must not be negative, not {random_state!r}.")
    return np.random.default_rng(random_state)


def gamma_sphere_noise(n_features: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""Draw a vector whose density is proportional to :math:`\exp(-\|b\|)`.

    Its norm follows the Gamma distribution with shape ``n_features`` and scale one; its direction
    is uniform on the sphere and independent of the norm.

    Parameters
    ----------
    n_features : int
        Dimension n of the vector, at least 1.
    rng : numpy.random.Generator
        Source of randomness; it advances.

    Returns
    -------
    ndarray of shape (n_features,)

    Raises
    ------
    ParameterError
        If ``n_features`` is smaller than 1.

    References
    ----------
    Anjarlekar, Etesami and Srikant, Mechanism Design for Heterogeneous Differentially Private
    Data Acquisition for Logistic Regression, Algorithm 1, step 2.
    """
    if n_features < 1:
        raise ParameterError(f"n_features must be at least 1, not {n_features!r}.")
    direction = rng.standard_normal(n_features)
    return rng.gamma(n_features) * direction / np.linalg.norm(direction)


def gamma_sphere_log_density(norm: float, n_features: int) -> float:
    r"""Log density, on :math:`\mathbb{R}^n`, of :func:`gamma_sphere_noise` at a given norm.

    Parameters
    ----------
    norm : float
        Euclidean norm of the vector.
    n_features : int
        Dimension n.

    Returns
    -------
    float
        :math:`-\|b\| - \log(|S^{n-1}|\,\Gamma(n))`, in nats, with :math:`|S^{n-1}| =
        2\pi^{n/2}/\Gamma(n/2)` the area of the unit sphere.
    """
    log_area = np.log(2.0) + xlogy(n_features / 2.0, np.pi) - gammaln(n_features / 2.0)
    return float(-norm - log_area - gammaln(n_features))
