"""Create priors from command-line arguments and from dictionaries in problem files."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from convexmarket.errors import PriorError
from convexmarket.priors import families
from convexmarket.priors.families import EmpiricalPrior, Mixture
from convexmarket.priors.prior import FloatArray, Prior

__all__ = ["parse_prior", "prior_from_dict"]

_KINDS: list[type[Prior]] = [vars(families)[name] for name in families.__all__]
_FAMILIES = {kind.family: kind for kind in _KINDS}
#: Distributions of ``scipy.stats`` that are excluded because their quantiles take minutes.
_SLOW = ("gausshyper", "geninvgauss", "irwinhall", "ksone", "kstwo", "studentized_range")
_EXAMPLES = "; ".join(kind.example for kind in _FAMILIES.values())


def parse_prior(text: str) -> Prior:
    """Create a prior from a short text, such as ``"uniform:0.02,0.10"``.

    Parameters
    ----------
    text : str
        Name of a family, a colon, and parameters in order. For ``empirical:FILE.csv``, the first
        numeric column is read. After ``mixture:``, semicolons separate the parts ``WEIGHT*PRIOR``.

    Returns
    -------
    Prior

    Examples
    --------
    >>> parse_prior("uniform:0.02,0.10")
    Uniform(0.02, 0.1)
    >>> parse_prior("beta:2,5")
    Beta(2.0, 5.0, 0.0, 1.0)
    """
    name, _, arguments = str(text).partition(":")
    kind = _family(name.strip().lower())
    if kind is EmpiricalPrior:
        return EmpiricalPrior(_first_numeric_column(arguments.strip()))
    if kind is Mixture:
        parts = [part.partition("*")[::2] for part in arguments.split(";")]
        weights, texts = zip(*parts, strict=True)
        return Mixture([*map(_number, weights)], [*map(parse_prior, texts)])
    return _build(kind, *map(_number, arguments.split(",")))


def prior_from_dict(described: Mapping[str, Any]) -> Prior:
    """Create a prior from the dictionary that ``Prior.to_dict`` returns.

    Parameters
    ----------
    described : mapping
        A mapping such as ``{"family": "uniform", "low": 0.02, "high": 0.1}``.

    Returns
    -------
    Prior

    Raises
    ------
    PriorError

    Examples
    --------
    >>> prior_from_dict({"family": "exponential", "mean": 0.05})
    Exponential(0.05)
    """
    if not isinstance(described, Mapping) or "family" not in described:
        raise PriorError(f"prior = {described!r} has no key 'family'; give one of {_EXAMPLES}")
    parameters = {name: value for name, value in described.items() if name != "family"}
    family = described["family"]
    if family == Mixture.family and isinstance(parameters.get("components"), list):
        parameters["components"] = [prior_from_dict(part) for part in parameters["components"]]
    return _build(_from_scipy_name if family == "scipy" else _family(family), **parameters)


def _from_scipy_name(distribution: str, args: Any = (), kwds: Any = None) -> Prior:
    public = getattr(stats, str(distribution), None)
    if distribution in _SLOW or not isinstance(public, stats.rv_continuous):
        raise PriorError(
            f"distribution = {distribution!r} is not a continuous distribution of scipy.stats with "
            "fast quantiles; use one such as 'gamma', or the family 'empirical' with draws from it"
        )
    return Prior.from_scipy(public(*args, **(kwds or {})))


def _build(build: Callable[..., Prior], *values: Any, **parameters: Any) -> Prior:
    """Return the result of ``build``, or raise a PriorError if the parameters are invalid."""
    try:
        return build(*values, **parameters)
    except PriorError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        takes = ", ".join(inspect.signature(build).parameters)
        text = f"{str(error).replace('.__init__()', ':')}; the parameters are {takes}"
        if values:  # a text has too many or too few commas
            text = f"prior has {len(values)} values; give {takes}, such as {vars(build)['example']}"
        raise PriorError(text) from None


def _family(name: object) -> type[Prior]:
    if str(name) not in _FAMILIES:
        raise PriorError(f"prior family {name!r} is unknown; give one of {_EXAMPLES}")
    return _FAMILIES[str(name)]


def _number(word: str) -> Any:
    """Convert a word to a number if possible. The constructor of the prior rejects other words."""
    try:
        return float(word)
    except ValueError:
        return word


def _first_numeric_column(path: str) -> FloatArray:
    """Read the first numeric column of a CSV file with or without a header."""
    try:  # header=None, because pandas would read the first number as a header
        table = pd.read_csv(path, header=None, dtype=str).apply(pd.to_numeric, errors="coerce")
    except (OSError, ValueError) as error:
        raise PriorError(f"prior 'empirical:{path}': {error}; give a CSV file") from None
    for column in table.to_numpy(dtype=float).T:
        numbers = column[int(np.isnan(column[0])) :]
        if numbers.size and not np.isnan(numbers).any():
            return numbers
    raise PriorError(
        f"prior 'empirical:{path}': no column contains a number in every row; "
        "give a CSV file with a column of sensitivities"
    )
