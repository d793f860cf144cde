"""What a paper claims, with the verdict of an experiment."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Claim", "Verdict"]

Verdict = Literal["reproduced", "reproduced in part", "not reproduced"]


@dataclass(frozen=True)
class Claim:
    """A claim of a paper and what came of it here.

    Attributes
    ----------
    source : str
        Paper and place, such as "B, appendix B, Figure 4".
    says : str
        The claim, in our words.
    verdict : str
        "reproduced", "reproduced in part" or "not reproduced".
    found : str
        What was measured, in numbers.
    remark : str
        Why, where that needs saying.
    """

    source: str
    says: str
    verdict: Verdict
    found: str
    remark: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as plain values."""
        return asdict(self)
