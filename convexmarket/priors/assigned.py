"""Assignment of priors to sellers: one for all, one for each, or one for each group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from convexmarket.checks import is_iterable
from convexmarket.errors import SellersError
from convexmarket.priors.prior import Prior, PriorLike, as_prior

__all__ = ["PriorOrPriors", "assigned"]

#: One prior for all, one for each seller, or one for each group.
PriorOrPriors: TypeAlias = PriorLike | Iterable[PriorLike] | Mapping[Any, PriorLike]


def assigned(
    given: PriorOrPriors | None, groups: NDArray[Any] | None, m: int
) -> tuple[tuple[Prior, ...], NDArray[np.intp] | None]:
    """Return the distinct priors, and the place of each seller's prior if there are several."""
    if given is None:
        raise SellersError(
            "sensitivities need the prior they are drawn from, for example "
            "prior=Uniform(0.02, 0.10); without one, give virtual_costs"
        )
    keys: list[Any] = ["prior"]
    named: dict[Any, Any] = {"prior": given}
    if isinstance(given, Mapping):
        if groups is None:
            raise SellersError(
                "prior is a mapping from group to prior, but groups is missing; give the group of "
                "each seller, groups=[...]"
            )
        keys, named = groups.tolist(), dict(given)
        for position, name in enumerate(keys):
            if name not in named:
                raise SellersError(
                    f"groups[{position}] is {name!r}, but prior has no such group; it has "
                    f"{', '.join(map(repr, list(named)[:10]))}"
                )
    elif is_iterable(given) and not isinstance(given, str):
        named = dict(enumerate(given))
        keys = list(named)
        if len(keys) != m:
            raise SellersError(f"{len(keys)} priors for {m} sellers; give one for each, or one")
    made: dict[int, Prior] = {}  # each object is converted once
    for name, prior in named.items():
        if id(prior) not in made:
            label = "prior" if prior is given else f"prior[{name!r}]"
            made[id(prior)] = as_prior(prior, label, SellersError)
    priors = [made[id(named[key])] for key in keys]
    place = {prior: number for number, prior in enumerate(dict.fromkeys(priors))}
    if len(place) == 1:
        return tuple(place), None
    return tuple(place), np.array([place[prior] for prior in priors], dtype=np.intp)
