"""What a report says of the papers' claims, and of what a joint problem does not promise."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from convexmarket.joint.result import NO_GUARANTEE
from convexmarket.lab.claims import Claim
from convexmarket.lab.report.model import Section, Table
from convexmarket.lab.report.words import share

__all__ = ["JOINT_WARNING", "claims_section", "claims_words"]

#: The first lines of every report on a joint problem.
JOINT_WARNING = f"{NO_GUARANTEE[0].upper()}{NO_GUARANTEE[1:]}."

#: How verdicts on curves follow from the numbers.
CURVES = (
    "Verdicts follow from the numbers: a rise or a fall counts if the 95% interval of the mean "
    "difference, paired over draws, excludes zero."
)


def claims_words(claims: Sequence[Claim]) -> str:
    """Say how many of the papers' claims are reproduced."""
    reproduced = sum(claim.verdict == "reproduced" for claim in claims)
    in_part = sum(claim.verdict == "reproduced in part" for claim in claims)
    words = f"Reproduced here: {share(reproduced, len(claims), 'claim')} of the papers"
    return f"{words}, and {in_part} in part." if in_part else f"{words}."


def claims_section(claims: Sequence[Claim], how: str = CURVES) -> Section:
    """List the papers' claims, what we find, and why it differs where it does.

    Parameters
    ----------
    claims : sequence of Claim
    how : str
        How verdicts follow from the numbers.
    """
    frame = pd.DataFrame([claim.to_dict() for claim in claims])
    return Section(
        "What the papers claim, and what we find",
        (
            how,
            *(f"{claim.says}: {claim.remark}" for claim in claims if claim.remark),
        ),
        tables=(
            Table(
                "claims",
                "The claims, in our words, and what was measured.",
                frame.drop(columns="remark"),
                {"says": "claim", "found": "measured here"},
            ),
        ),
    )
