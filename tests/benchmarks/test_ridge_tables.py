"""Tables 1 to 4 of the ridge paper."""

from pathlib import Path

import numpy as np
import pytest

from convexmarket.lab.kinds.ridge_comparison import run as ridge
from convexmarket.lab.problem.loading import load_problem

PROBLEMS = Path(__file__).parents[2] / "problems"
OVERRIDES = ["run.draws=1", "run.samples=50", "run.jobs=1"]
PUBLISHED_DRAWS = 10_000
SIMULATED_DRAWS = 500


@pytest.fixture(scope="module")
def problems():
    loaded = [
        load_problem(PROBLEMS / f"ridge-{n}.toml", OVERRIDES) for n in ("synthetic", "medical")
    ]
    return [problem.model_copy(update={"sweeps": problem.sweeps[:1]}) for problem in loaded]


def closed_forms(problems):
    return [ridge._one_draw(problem, 0) for problem in problems]


def simulation(problems):
    """Simulate three of the private columns, with a twentieth of the paper's draws."""
    rng = np.random.default_rng(0)
    for problem in problems:
        data = ridge._load(problem, 0)
        for scene, alphas, _ in ridge._scenes(problem, problem.sweeps[0], data, 0):
            for alpha in alphas:
                for method in ridge.CONFIRMED:
                    ridge._simulate(problem, scene, float(alpha), method, rng, SIMULATED_DRAWS)


def test_closed_forms(benchmark, problems):
    """All columns in closed form."""
    benchmark.pedantic(closed_forms, args=(problems,), rounds=5, warmup_rounds=1)


def test_simulation(benchmark, problems):
    """Three of the seven columns by simulation."""
    benchmark.extra_info["draws"] = SIMULATED_DRAWS
    benchmark.extra_info["draws of the paper"] = PUBLISHED_DRAWS
    benchmark.pedantic(simulation, args=(problems,), rounds=2)
