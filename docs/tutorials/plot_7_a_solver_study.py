"""
A solver study
==============

Each subproblem is a CVXPY problem, which any solver of CVXPY can take. Whose answers are accurate?
"""

import numpy as np
import pandas as pd

import convexmarket as cm

sellers = cm.Sellers.draw(200, cm.Uniform(0.02, 0.10), np.random.default_rng(0))
market = cm.Market.standard(sellers, mu=1, sigma=100, gamma=0.001, cap=5)
exact = cm.allocate(market)

# %%
# The same problem at a fixed eta, in three formulations:
rows = []
for formulation, solver in (("primal", "ECOS"), ("dual", "CLARABEL"), ("projection", "OSQP")):
    problem = cm.declare(market, eta=exact.eta, formulation=formulation)
    problem.solve(solver=solver)
    off = np.abs(problem.weights - exact.weights).max() * len(sellers)
    rows.append((formulation, solver, problem.status, off))
pd.DataFrame(rows, columns=["formulation", "solver", "says", "weights off by (of 1/m)"])

# %%
# The certified search trusts none of them: its lower bound holds whatever a solver returned.
certified = cm.allocate(market, method="line_search", formulation="projection", solver="OSQP")
print(certified.lower_bound <= exact.objective <= certified.objective, certified.gap)

# %%
# ``cm.compare_solvers`` measures solvers and formulations on drawn instances, with limits on time
# and memory. Each answer is checked by its residuals.
runs = cm.compare_solvers(
    {"market": market},
    solvers=["exact", "CLARABEL", "OSQP"],
    formulations=["primal", "projection"],
    draws=1,
    progress=False,
)
runs.to_frame()[["solver", "formulation", "outcome", "total_s", "accuracy"]]

# %%
# ``runs.report("Which solver?").write("out/study")`` writes the report.
# ``convexmarket compare problems/*.toml`` does the same for the subproblems of problem files.
