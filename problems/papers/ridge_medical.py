"""Personalised privacy for ridge regression: medical costs.

Question: yearly medical charges are predicted from age, habits and family, learnt from 1,070
people, some of whom ask for much more privacy than others. What does PDP-OP gain?

Source: R, section 4 and appendix B, tables 2, 4, 6, 8, 10, 12 and 14. The paper does not list its
columns; three numbers, the full coding of three categories and a constant reproduce its figures. It
scales with the extremes of the private rows, which leaks them; here the ranges are public.

Varied: lambda, the levels of privacy and their shares, and the number of rows.
"""

from dataclasses import replace

from problems.papers.methods import begin
from problems.papers.methods.ridge_losses import (
    CONSERVATIVE,
    MEDIUM,
    OTHER,
    ROWS,
    SHARES,
    Levels,
    Study,
    Sweep,
    run,
)
from problems.papers.methods.ridge_report import gain_claims, order_claims, pages, table_claims

LAMBDA = (0.01, 0.05, 0.1, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 2, 3, 5)
STUDY = Study(
    data="medical",
    sweeps=(
        Sweep("regularization", LAMBDA, (2, 4, 14)),
        Sweep("eps_conservative", CONSERVATIVE, (6,), replace(OTHER, eps_medium=0.5)),
        Sweep("eps_medium", MEDIUM, (8,), OTHER),
        Sweep("f_conservative", SHARES, (10,), Levels(f_medium=0.37)),
        Sweep("row_fraction", ROWS, (12,)),
    ),
    regularization=1.0,
    label_noise=0.1,  # assumptions that a buyer could make in public
    coef_norm=1.0,
    smallest_eigenvalue=0.0,  # the columns of a category add up to the constant one
)


def compute(quick=False):
    """Compute the losses of all methods over all sweeps."""
    return run(replace(STUDY, draws=2) if quick else STUDY)


def claims(frames):
    """Check R's order, its tables, and our tighter constants."""
    yield from order_claims(frames)
    yield from table_claims(frames)
    yield from gain_claims(frames)


def report(frames):
    """Write the comparison down."""
    cells = frames["cells"].query("sweep == 0 and loss == 'unreg' and value == 1")
    loss = cells.set_index("method")["mean"]
    finding = (
        f"At lambda = 1 the median test loss of PDP-OP is {loss['pdp_op']:.3g}; with everybody at "
        f"the least guarantee it is {loss['nonpersonalized']:.3g}, and {loss['pdp_op_tight']:.3g} "
        "for PDP-OP with the tight sensitivity."
    )
    page = begin(
        "Personalised privacy for ridge regression: medical costs", __doc__, finding, claims(frames)
    )
    pages(page, frames)
    return page
