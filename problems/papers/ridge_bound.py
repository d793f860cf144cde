"""Which lambda, and where to put the noise.

Question: with 80,000 people, is the lambda that minimises the bound of Theorem 3.6 a good one? And
what does noise in the objective, or in the sums that ridge regression solves, gain over noise in
the model, under the same guarantees?

Source: R, Theorem 3.6 and section 5, which leaves other perturbations to future work. 5 features,
labels with a standard deviation of 0.05; the levels of privacy are the paper's. The noise of sums
and of the objective is that of the learners, exact on a lattice; that of PDP-OP is the paper's.

Varied: lambda, and the number of rows.
"""

from dataclasses import replace

import numpy as np

from problems.papers.methods import begin
from problems.papers.methods.ridge_losses import Study, Sweep, run
from problems.papers.methods.ridge_report import gain_claims, pages

PERTURBATIONS = ("objective", "huber", "statistics")
STUDY = Study(
    data=(100_000, 5, 0.05),
    sweeps=(
        Sweep("regularization", (0.001, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.5, 1)),
        Sweep("row_fraction", (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)),
    ),
    regularization=0.1,
    label_noise=0.05,
    coef_norm=1 / np.sqrt(5),
    smallest_eigenvalue=1 / 12,
    sensitivity="tight",
    draws=5,
    samples=5,
    perturbations=PERTURBATIONS,
)


def compute(quick=False):
    """Compute the losses of all methods over both sweeps."""
    if quick:
        rows = Sweep("row_fraction", STUDY.sweeps[1].values[:3])
        return run(replace(STUDY, draws=2, sweeps=(STUDY.sweeps[0], rows), perturbations=()))
    return run(STUDY)


def claims(frames):
    """Check the lambda that the bound names, and where noise costs least."""
    bound, cells = frames["bound"], frames["cells"].query("sweep == 0 and loss == 'unreg'")
    loss = cells.pivot_table(index="value", columns="method", values="mean")
    named = bound.regularization[bound.total.idxmin()]
    near = loss.pdp_op.iloc[np.abs(np.log(loss.index / named)).argmin()]
    factor = near / loss.pdp_op.min()
    text = "At the lambda that minimises the bound PDP-OP loses at most twice its least"
    detail = f"lambda = {named:.3g}, {factor:.3g} times the least"
    yield text, bool(factor <= 2), "R, Theorem 3.6", detail
    for name in [each for each in PERTURBATIONS if each in loss]:
        ratio = loss[name].min() / loss.pdp_op.min()
        text = f"At its best lambda, noise by {name} loses less than PDP-OP at its own"
        detail = f"ratio of the least losses {ratio:.3g}"
        yield text, bool(ratio < 1), "R, section 5", detail
    yield from gain_claims(frames)


def report(frames):
    """Write the comparison down."""
    cells = frames["cells"].query("sweep == 0 and loss == 'unreg'")
    least = cells.loc[cells.groupby("method")["mean"].idxmin()].set_index("method")
    finding = "Least test loss over lambda: " + ", ".join(
        f"{name} {row['mean']:.3g} at {row['value']:g}" for name, row in least.iterrows()
    )
    page = begin("Which lambda, and where to put the noise?", __doc__, finding, claims(frames))
    pages(page, frames, ("pdp_op", "nonpersonalized", "nonprivate", *PERTURBATIONS))
    return page
