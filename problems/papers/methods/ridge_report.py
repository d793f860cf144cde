"""What the reports on ridge regressions have in common: claims about R's tables, and pages."""

import numpy as np

from convexmarket.report.figures import lines
from problems.papers.methods.ridge_losses import CLOSE, ORDER

SOURCE = "R, section 4 and appendix B"
CAVEAT = (
    "The baseline of Jorgensen et al. is run as published, with noise that shrinks as the sample "
    "grows; with one row replaced its promise is then not established. The paper reports one draw "
    "of data and privacy levels; here are medians and ranges over draws. Losses on test rows are "
    "facts about private models, not releases, and lambda must not be chosen by them."
)


def order_claims(frames):
    """Check R's order of the methods in our medians."""
    orders = frames["orderings"]
    for column, text in (
        ("ours", "PDP-OP < Jorgensen max < Jorgensen mean << non-personalised (<<: ten times)"),
        ("in_order", "PDP-OP < Jorgensen max < Jorgensen mean < non-personalised"),
    ):
        yield text, orders[column].to_numpy(), SOURCE, ""


def table_claims(frames):
    """Compare each published table with our medians: at least 80% of its cells are close."""
    for (file, sweep), rows in frames["published"].groupby(["file", "sweep"], sort=True):
        private = rows[rows.method != "nonprivate"]
        share = private.close.mean()
        text = (
            f"Table {int(file[15:17])} of R is reproduced within a factor of {CLOSE:g}"
            f" (sweep {sweep})"
        )
        detail = (
            f"{share:.0%} of {len(private)} private cells; median ratio "
            f"{np.exp(np.log(private.ratio).median()):.2f}"
        )
        yield text, bool(share >= 0.8), f"R, Table {int(file[15:17])}", detail


def gain_claims(frames):
    """Check the tight sensitivity, the optimal weights and the simulation."""
    gains = frames["gains"].query("method == 'pdp_op_tight'")
    text = "The tight sensitivity never loses more than that of the paper"
    holds = bool((gains.ratio <= 1 + 1e-9).all())
    source = "our design: half of R's bound on the norm of the model"
    detail = f"ratio of the losses {gains.ratio.min():.3g} to {gains.ratio.max():.3g}"
    yield text, holds, source, detail
    yield confirmed(frames)


def confirmed(frames):
    """Check the closed forms by simulation."""
    z = frames["confirmation"].z.abs()
    text = "Simulated losses agree with the closed forms within four standard errors"
    detail = f"largest distance {z.max():.2f} standard errors, of {z.size}"
    return text, bool((z < 4).all()), "audit of this report", detail


def pages(page, frames, methods=(*ORDER, "pdp_op_tight")):
    """Add the figures and tables."""
    shown = frames["cells"][frames["cells"].method.isin(methods)]
    for (sweep, parameter), rows in shown.groupby(["sweep", "parameter"], sort=False):
        for loss, own in rows.groupby("loss", sort=False):
            named = own.rename(columns={"value": parameter})
            figure = lines(
                named, parameter, "mean", hue="method", log="xy", low="mean_low", high="mean_high"
            )
            page.add(figure, caption=f"Expected {loss} loss, median and 90% range (sweep {sweep}).")
    bound = frames["bound"].melt("regularization", var_name="term", value_name="bound")
    figure = lines(bound, "regularization", "bound", hue="term", log="xy")
    page.add(figure, caption="The bound of Theorem 3.6 over lambda, and its terms.")
    for name, caption in (
        ("published", "Published cells and ours."),
        ("orderings", "Where the order of the methods holds."),
        ("gains", "Tight sensitivity and optimal weights over PDP-OP."),
        ("confirmation", "Simulation of some cells."),
    ):
        if len(frames.get(name, ())):
            page.add(frames[name], caption=caption, name=name)
    page.add(CAVEAT)
    for name in ("cells", "draws", "bound"):
        page.add(frames[name], caption=name.capitalize(), name=name, appendix=True)
