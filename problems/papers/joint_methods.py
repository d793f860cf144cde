"""A comparison of methods that solve the joint problem.

Question: the joint problem chooses the model, the weights and the total privacy. For a fixed eta,
the problem is convex if the weight of the spread and the regularization are large enough. Which
method finds the best point inside and outside this convex region, and how fast?

Source: A, Theorem VIII.1 and Algorithm 4; B, Theorem 4.1 and section 4.2. The methods are
alternating minimisation (with exact steps or a conic solver), the exponential change of variables,
CVXPY's nonlinear interface, and the papers' projected gradient descent on a grid of eta.

The spread is a norm or a squared norm, and instances are inside or outside the convex region. The
rows are Gaussian with a linear separator, or from the Wisconsin breast-cancer data.
"""

import time

import numpy as np
import pandas as pd

import convexmarket as cm
from convexmarket.data.datasets import synthetic, wdbc
from convexmarket.report import compare
from convexmarket.report.figures import bars
from problems.papers.methods import begin
from problems.papers.methods.joint_gradient import Terms, descend, projected_gradient
from problems.papers.methods.joint_nonlinear import solve_nonlinear

PRIOR = cm.Uniform(np.exp(-4), 5 * np.exp(-4))
#: Relative tolerances for the best point, equal objectives and equal end points of descents.
BEST, AGREE, SAME = 1e-6, 1e-5, 1e-6
RESTARTS = 5
INSIDE = ["alternating", "alternating, CLARABEL", "exponential", "nlp"]
INSIDE += ["projected gradient, fine grid"]
OUTSIDE = ["alternating", "alternating, CLARABEL", "exponential, 3 starts", "nlp"]
OUTSIDE += ["projected gradient"]
WDBC = ["alternating", "alternating, 5 starts", "projected gradient"]
#: Instances of each group, first seed (None: wdbc), terms, Lambda, convexity ratio and methods.
GROUPS = {
    "inside, squared spread": (25, 100, Terms(10.0, 10.0, 0.1, squared=True), None, 0.5, INSIDE),
    "inside, norm": (25, 200, Terms(1.0, 10.0, 0.1, cap=2.0), None, 0.5, INSIDE),
    "outside, squared spread": (15, 300, Terms(1.0, 10.0, 0.1, squared=True), 0.01, None, OUTSIDE),
    "outside, norm": (15, 400, Terms(0.3, 10.0, 0.1), 0.01, None, OUTSIDE),
    "convex in z, not in a": (10, 500, Terms(0.1, 10.0, 0.1), 0.27, None, OUTSIDE),
    "breast cancer": (1, None, Terms(1.0, 100.0, 0.001), 0.01, None, WDBC),
}
#: Arguments of allocate_jointly; the other methods are separate functions.
OPTIONS = {
    "alternating": {"method": "alternating", "starts": 3},
    "alternating, 5 starts": {"method": "alternating", "starts": 5},
    "alternating, CLARABEL": {"method": "alternating", "starts": 1, "solver": "CLARABEL"},
    "exponential": {"method": "exponential", "starts": 1},
    "exponential, 3 starts": {"method": "exponential", "starts": 3},
}
OPTIONS["alternating, CLARABEL"]["tol"] = 1e-9


def random(purpose, group, number, *more):
    """Create a generator for sizes (0), sensitivities (1), starts (2) or restarts (3)."""
    key = (purpose, list(GROUPS).index(group), number, *more)
    return np.random.default_rng(np.random.SeedSequence(0, spawn_key=key))


def instance(group, number):
    """Build the joint problem of an instance."""
    _, seed, terms, regularization, ratio, _ = GROUPS[group]
    if seed is None:
        rows = wdbc(number, (0.6, 0.2, 0.2))
    else:
        rng = random(0, group, number)
        m, n = (int(rng.integers(*ends, endpoint=True)) for ends in ((20, 60), (2, 5)))
        rows = synthetic(m, n, seed + number, 500, 500)
    drawn = PRIOR.sample(rows.y_train.size, random(1, group, number))
    spread = cm.terms.SquaredSpread() if terms.squared else cm.Spread()
    objective = terms.mu * spread + terms.sigma * cm.Noise() + terms.gamma * cm.Payments()
    limits = [] if terms.cap is None else [cm.Cap(terms.cap)]
    market = cm.Market(cm.Sellers(drawn, PRIOR), objective, limits)
    if regularization is None:  # the ratio is inversely proportional to Lambda
        plain = cm.JointMarket(market, rows.X_train, rows.y_train, regularization=1.0)
        regularization = cm.joint.convexity_ratio(plain) / ratio
    return cm.JointMarket(market, rows.X_train, rows.y_train, regularization=regularization)


def described(group, joint):
    """Return the size, Lambda and the convexity conditions of an instance."""
    terms, (m, n) = GROUPS[group][2], joint.X.shape
    ratio, threshold = cm.joint.convexity_ratio(joint), cm.joint.convexity_threshold(joint.X)
    row = {"n_sellers": m, "n_features": n, "spread": "squared" if terms.squared else "norm"}
    row |= {"regularization": joint.regularization, "convexity": ratio, "inside": ratio < 1}
    row |= {"sigma_max_squared": np.linalg.norm(joint.X, 2) ** 2}
    row |= {"paper_needs": float(m) if terms.squared else np.nan}
    certified = 2 * joint.regularization * terms.mu > m if terms.squared else None
    return row | {
        "paper_certifies": certified,
        "exponential_convex": joint.regularization >= threshold,
    }


def attempt(group, number, name):
    """Run one method on one instance. All methods use the same starting points."""
    joint, terms, rng = instance(group, number), GROUPS[group][2], random(2, group, number)
    began, starts = time.perf_counter(), [np.nan]
    try:
        if name.startswith("projected"):
            answer = projected_gradient(joint, terms, 200 if "fine" in name else 50, rng)
        elif name == "nlp":
            answer = _nonlinear(joint, terms, rng)
        else:
            result = cm.allocate_jointly(joint, random_state=rng, **OPTIONS[name])
            answer, starts = (result.objective, result.eta), list(result.starts)
    except (cm.ConvexMarketError, ImportError) as error:
        return {"status": type(error).__name__, "message": str(error)}
    seconds = time.perf_counter() - began
    row = {"status": "solved", "message": "", "objective": answer[0], "eta": answer[1]}
    spread = (max(starts) - min(starts)) / abs(min(starts))
    return row | {"seconds": seconds, "starts": len(starts), "starts_range": spread}


def _nonlinear(joint, terms, rng):
    """Solve from the zero model, the class means and a random model. Return the best result."""
    slope = joint.X.T @ joint.y / (2 * len(joint.y)) / joint.regularization
    drawn = np.linalg.norm(slope) * rng.normal(size=slope.size) / np.sqrt(slope.size)
    ends = []
    for model in (np.zeros(slope.size), slope, drawn):
        bought = cm.allocate(joint.purchase_market(model))
        ends.append((joint.objective(model, bought.weights, bought.eta), bought.eta))
        answer = solve_nonlinear(joint, terms, model, bought.weights, bought.eta)
        if answer is not None:
            ends.append((joint.objective(*answer), answer[2]))
    return min(ends)


def study(group, number, quick=False):
    """Run every method on one instance, and start descents from random models at the best eta."""
    joint, labels = instance(group, number), {"group": group, "instance": number}
    runs = []
    for name in GROUPS[group][5]:
        if quick and "gradient" in name:
            continue
        answer = attempt(group, number, name)
        method = "projected_gradient" if "gradient" in name else name.split(",")[0]
        runs.append(labels | {"name": name, "method": method} | answer)
    best = min((row for row in runs if row["status"] == "solved"), key=lambda r: r["objective"])
    for row in runs:
        row["excess"] = row.get("objective", np.nan) / best["objective"] - 1
    ends = []
    for start in range(RESTARTS):
        model = random(3, group, number, start).normal(size=joint.X.shape[1])
        ends.append(descend(joint, GROUPS[group][2], best["eta"], model))
    lowest = min(ends, key=lambda end: end[2])[0]
    descents = [
        labels
        | {"start": start, "objective": objective, "excess": objective / best["objective"] - 1}
        | {"model_distance": np.linalg.norm(model - lowest) / np.linalg.norm(lowest)}
        for start, (model, _, objective) in enumerate(ends)
    ]
    row = labels | described(group, joint)
    return row | {"best": best["objective"], "best_eta": best["eta"]}, runs, descents


def compute(quick=False):
    """Run every method on every instance of its group."""
    places = [(group, k) for group, (count, *_) in GROUPS.items() for k in range(count)]
    if quick:
        places = [(group, 0) for group in list(GROUPS)[:5]]
    answer = [study(*place, quick=quick) for place in places]
    return {
        "runs": pd.DataFrame([row for _, rows, _ in answer for row in rows]),
        "instances": pd.DataFrame([row for row, _, _ in answer]),
        "descents": pd.DataFrame([row for _, _, rows in answer for row in rows]),
    }


def ranges(frames):
    """Compute the relative range of the objectives of the random descents for each instance."""
    ends = frames["descents"].groupby(["group", "instance"], sort=False).objective
    spread = ((ends.max() - ends.min()) / ends.min().abs()).rename("range").reset_index()
    return frames["instances"].merge(spread, on=["group", "instance"])


def claims(frames):
    """Check the claims of the papers and of this package about the methods."""
    solved = frames["runs"][frames["runs"].status == "solved"]
    runs = solved.merge(frames["instances"], on=["group", "instance"])
    inside, spread = runs[runs.inside], ranges(frames)
    largest = inside.groupby("name", sort=False).excess.max()
    text = f"If the problem is convex for each eta, all objectives agree to {AGREE:g}"
    detail = "; ".join(f"{name} {value:.1e}" for name, value in largest.items())
    yield text, largest <= AGREE, "our design", detail
    same = spread.range <= SAME
    text = "For a fixed eta, descents from different models end at the same point"
    source = "A, after Theorem VIII.1; B, after Theorem 4.1"
    detail = (
        f"{same[spread.inside].sum()} of {spread.inside.sum()} instances inside the convex region "
        f"and {same[~spread.inside].sum()} of {(~spread.inside).sum()} outside this region"
    )
    yield text, same.to_numpy(), source, detail
    squared = frames["instances"][frames["instances"].spread == "squared"]
    needed = (squared.paper_needs / squared.sigma_max_squared).median()
    text = "2*Lambda*mu > m is sufficient but not necessary for convexity"
    holds = bool(squared.inside.sum() > squared.paper_certifies.sum())
    detail = (
        f"this condition certifies {squared.paper_certifies.sum()} of {len(squared)} instances, "
        f"and 2*Lambda*mu > sigma_max(X)^2 certifies {squared.inside.sum()}; the median ratio of "
        f"the two bounds is {needed:.2g}"
    )
    yield text, holds, "A, after Theorem VIII.1", detail
    convex = runs[(runs.method == "exponential") & runs.exponential_convex]
    reached = convex.excess + convex.starts_range <= AGREE
    text = "A descent in z = log(a) reaches the minimum for Lambda > lambda_conv"
    detail = (
        f"on {reached.sum()} of {len(convex)} instances, including {reached[~convex.inside].sum()} "
        f"of the {(~convex.inside).sum()} instances that are not convex in a"
    )
    yield text, reached.to_numpy(), "B, Theorem 4.1", detail


def finding(frames):
    """Compare the objectives of all methods with the objectives of alternating minimisation."""
    solved = frames["runs"].query("status == 'solved' and group != 'breast cancer'")
    runs = solved.merge(frames["instances"], on=["group", "instance"]).query("not inside")
    excess = runs.pivot_table(index=["group", "instance"], columns="name", values="excess")
    others = excess.columns.drop("alternating")
    gaps = [compare(*excess[[each, "alternating"]].dropna().T.to_numpy()) for each in others]
    nearest = int(np.argmin([gap.estimate for gap in gaps]))
    names = ("The", others[nearest]), ("the", "alternating")
    words = (f"{article} mean excess of the objective with “{name}”" for article, name in names)
    best = (excess <= BEST).sum().sort_values(ascending=False)
    return (
        f"On {len(excess)} instances outside the convex region, the best objective is found "
        + ", ".join(f"{count} times by “{name}”" for name, count in best.items())
        + f". {gaps[nearest].sentence(*words)}"
    )


def report(frames):
    """Write the report of the comparison."""
    runs = frames["runs"]
    finds = (runs.assign(best=runs.excess <= BEST).groupby("name", sort=False).best).mean()
    page = begin("Methods for the joint problem", __doc__, finding(frames), claims(frames))
    summary = runs.groupby(["group", "name"], sort=False).agg(
        instances=("instance", "count"),
        best=("excess", lambda values: (values <= BEST).sum()),
        largest_excess=("excess", "max"),
        median_seconds=("seconds", "median"),
    )
    page.add(summary.reset_index(), caption="Results of each method by group.", name="summary")
    shares = finds.mul(100).rename("share").reset_index()
    figure = bars(shares, "share", "name", xlabel=f"Instances within {BEST:g} of the best (%)")
    page.add(figure, caption="Share of instances on which each method found the best point.")
    page.add(
        "Projected gradient descent uses a grid of eta, and the best eta can lie between two grid "
        "points. As a function of z = log(a), the objective is convex for Lambda above "
        "lambda_conv. The set of z for which the weights sum to one is not convex, so several "
        "local minima can exist. The times apply to these implementations and tolerances on one "
        "machine. The solutions have no privacy guarantee."
    )
    for name in ("instances", "runs", "descents"):
        page.add(frames[name], caption=name.capitalize(), name=name, appendix=True)
    return page
