"""Display of results in notebooks, and axes of plots."""

from __future__ import annotations

from html import escape
from typing import Any


class Shown:
    """An object that notebooks show as a formula or text, with the first and last table rows."""

    def _repr_html_(self) -> str:
        write = getattr(self, "_repr_latex_", self.__str__)
        text = f"<p>{escape(write()).replace(chr(10), '<br>')}</p>"
        if hasattr(self, "to_frame"):
            text += self.to_frame().to_html(max_rows=8, float_format="{:.4g}".format)
        return text


def axes(ax: Any = None, **labels: str) -> Any:
    """Set the labels of given or new matplotlib Axes, and return these Axes."""
    if ax is None:
        from matplotlib import pyplot as plt

        _, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    ax.set(**labels)
    return ax
