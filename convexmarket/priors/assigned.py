"""Assignment of priors to sellers: one for all, one for each, or one for each group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from convexmarket.checks import is_iterable
from convexmarket.errors import SellersError
from convexmarket.priors.prior import Prior, PriorLike, as_prior

__all__ = ["PriorOrPriors", "assigned", "by_prior"]

#: One prior for all, one for each seller, or one for each group.
PriorOrPriors: TypeAlias = PriorLike | Iterable[PriorLike] | Mapping[Any, PriorLike]


def by_prior(
    priors: tuple[Prior, ...], prior_of: NDArray[np.intp] | None, positions: NDArray[np.intp]
) -> list[tuple[Prior, NDArray[np.intp]]]:
    """Return priors of some sellers, each with the indices into ``positions`` of its sellers."""
    if prior_of is None:
        return [(prior, np.arange(positions.size)) for prior in priors]
    selected = prior_of[positions]
    order = np.argsort(selected, kind="stable")
    kinds, first = np.unique(selected[order], return_index=True)
    places = np.split(order, first[1:]) if kinds.size else []
    return [(priors[kind], place) for kind, place in zip(kinds, places, strict=True)]


def assigned(
    given: PriorOrPriors | None, groups: NDArray[Any] | None, m: int
) -> tuple[tuple[Prior, ...], NDArray[np.intp] | None]:
    """Return the distinct priors, and the place of each seller's prior if there are several.

    Raises
    ------
    SellersError
        If a seller has no prior, or an object is not a prior.
    """
    if given is None:
        raise SellersError(
            "sensitivities need the prior they are drawn from, for example "
            "prior=Uniform(0.02, 0.10); without one, give virtual_costs"
        )
    each: list[Any] = [given]
    named: dict[str, Any] = {"prior": given}
    if isinstance(given, Mapping):
        if groups is None:
            raise SellersError(
                "prior is a mapping from group to prior, but groups is missing; give the group of "
                "each seller, groups=[...]"
            )
        names = groups.tolist()
        for position, name in enumerate(names):
            if name not in given:
                raise SellersError(
                    f"groups[{position}] is {name!r}, but prior has no such group; it has "
                    f"{', '.join(map(repr, list(given)[:10]))}"
                )
        each = [given[name] for name in names]
        named = {f"prior[{group!r}]": prior for group, prior in given.items()}
    elif is_iterable(given) and not isinstance(given, str):
        each = list(given)
        if len(each) != m:
            raise SellersError(f"{len(each)} priors for {m} sellers; give one for each, or one")
        named = {f"prior[{position}]": prior for position, prior in enumerate(each)}
    made: dict[int, Prior] = {}  # each object is converted once
    for name, prior in named.items():
        if id(prior) not in made:
            made[id(prior)] = as_prior(prior, name, SellersError)
    priors = [made[id(prior)] for prior in each]
    place = {prior: number for number, prior in enumerate(dict.fromkeys(priors))}
    if len(place) == 1:
        return tuple(place), None
    return tuple(place), np.array([place[prior] for prior in priors], dtype=np.intp)
