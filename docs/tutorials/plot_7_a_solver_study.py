"""
A solver study
==============

Each subproblem of a market is a CVXPY problem, so every CVXPY solver that supports the problem can
be used. This tutorial compares the accuracy and the time of several solvers.
"""

import numpy as np
import pandas as pd

import convexmarket as cm

sellers = cm.Sellers.draw(200, cm.Uniform(0.02, 0.10), np.random.default_rng(0))
market = cm.Market.standard(sellers, mu=1, sigma=100, gamma=0.001, cap=5)
exact = cm.allocate(market)

# %%
# The problem at a fixed eta has three formulations. The last column of the table is the largest
# error of a weight, in units of the average weight:
rows = []
for formulation, solver in (("primal", "CLARABEL"), ("dual", "CLARABEL"), ("projection", "OSQP")):
    problem = cm.declare(market, eta=exact.eta, formulation=formulation)
    problem.solve(solver=solver)
    error = np.abs(problem.weights - exact.weights).max() * len(sellers)
    rows.append((formulation, solver, problem.status, error))
pd.DataFrame(rows, columns=["formulation", "solver", "status", "error of the weights"])

# %%
# The certified search does not rely on the status that a solver returns. The lower bound of the
# search is valid even if the solutions are inaccurate:
certified = cm.allocate(market, method="line_search", formulation="projection", solver="OSQP")
print("bound <= exact optimum:", certified.lower_bound <= exact.objective)
print("gap below 1e-6:", certified.gap < 1e-6)

# %%
# ``cm.compare_solvers`` measures the time and the accuracy of solvers and formulations on random
# instances, with limits on time and memory. Residuals show whether a solution is correct. The
# primal formulation is a cone program. OSQP only solves quadratic programs, so the outcome of OSQP
# for this formulation is "unsupported":
runs = cm.compare_solvers(
    {"market": market},
    solvers=["exact", "CLARABEL", "OSQP"],
    formulations=["primal", "projection"],
    draws=1,
    progress=False,
)
runs.to_frame()[["solver", "formulation", "outcome", "total_s", "accuracy"]]

# %%
# The plot compares the solution times. ``runs.report("Which solver?").write("out/study")`` writes a
# report. The command ``convexmarket compare problems/*.toml`` writes such a report for problem
# files.
runs.plot()
