"""One figure for all reports: curves over an axis, with intervals where a table has them."""

from matplotlib.figure import Figure


def lines(frame, x, y, by="", log="", reference=None):
    """Draw ``y`` over ``x``, a curve for each value of ``by``, with a bar from y_low to y_high.

    Parameters
    ----------
    frame : DataFrame
    x, y : str
        Columns. Where ``<y>_low`` and ``<y>_high`` are columns too they are error bars.
    by : str
        Column that names the curves.
    log : str
        Axes with a logarithmic scale: "", "x", "y" or "xy".
    reference : float, optional
        Level of a dashed line.
    """
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for name, rows in frame.groupby(by, sort=False) if by else [("", frame)]:
        rows = rows.sort_values(x)
        bars = None
        if f"{y}_low" in rows:
            bars = (rows[y] - rows[f"{y}_low"], rows[f"{y}_high"] - rows[y])
        axes.errorbar(rows[x], rows[y], yerr=bars, marker="o", ms=3, lw=1.2, capsize=2, label=name)
    if reference is not None:
        axes.axhline(reference, color="0.4", lw=0.8, ls="--")
    for axis in log:
        getattr(axes, f"set_{axis}scale")("log")
    axes.set_xlabel(x.replace("_", " "))
    axes.set_ylabel(y.replace("_", " "))
    if by:
        axes.legend(title=by.replace("_", " "), fontsize=8)
    return figure
