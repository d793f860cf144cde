"""Build synthetic patients and problem files of kind "market"."""

import numpy as np
import pandas as pd

TABLE = """
[data]
source = "csv"
file = "patients.csv"
id = "patient"
report = "ask"
missing = "indicator"
{columns}
[data.features]
age = [18, 100]
bmi = [15, 50]
smoker = ["no", "former", "yes"]
[prior]
family = "uniform"
low = 0.02
high = 0.1
"""
TRADEOFF = (
    """
kind = "market"
title = "Patients"
"""
    + TABLE.format(
        columns='label = "ill"\nclasses = ["no", "yes"]\npublic = {validation = 0.2, test = 0.3}'
    )
    + """
[objective]
gamma = [0.002]
mu = [1.0]
sigma = [10.0]
cap = 2
[learner]
regularization = [0.03]
draws = 2
[naive]
eta_range = [10.0, 100.0]
grid = 1
[run]
jobs = 1
"""
)
REGRESSION = (
    """
kind = "market"
title = "Costs"
"""
    + TABLE.format(columns='label = "costs"\npublic = {test = 0.3}')
    + """
[objective]
gamma = [0.01]
cap = 2
[learner]
name = "PersonalizedRidge"
regularization = [0.3]
target_range = [-60_000, 60_000]
label_noise = 0.2
coef_norm = 1.0
[run]
jobs = 1
"""
)


def patients(n=2_000, seed=0):
    """Draw a table of synthetic patients with ids, and reports in currency per unit of epsilon."""
    rng = np.random.default_rng(seed)
    age, bmi = rng.integers(18, 96, n), rng.normal(27, 5, n).round(1)
    smoker = rng.choice(["no", "former", "yes"], n)
    risk = age / 15 + bmi / 6 + 1.5 * (smoker == "yes") - 8.7 + rng.logistic(size=n)
    ids = pd.Index([f"P{number:04d}" for number in range(n)], name="patient")
    table = pd.DataFrame({"age": age, "bmi": bmi, "smoker": smoker}, index=ids)
    table["bmi"] = table["bmi"].where(rng.random(n) > 0.1)
    table["region"] = rng.choice(["north", "south"], n)
    table["ill"] = np.where(risk > 0, "yes", "no")
    table["costs"] = (5_000 + 3_000 * risk).round(2)
    table["ask"] = rng.uniform(0.02, 0.10, n).round(4)
    return table


def written(folder, text=TRADEOFF, table=None):
    """Write patients.csv and market.toml into a folder, and return the path of market.toml."""
    (patients(120) if table is None else table).to_csv(folder / "patients.csv")
    path = folder / "market.toml"
    path.write_text(text, encoding="utf-8")
    return path


#: Values that replace the placeholders in the draft of a problem file for the patients.
_DECLARED = {
    "label": '"ill"',
    "classes": '["no", "yes"]',
    "public": "{validation = 0.2, test = 0.2}",
    "age": "[18, 100]",
    "bmi": "[15, 50]",
    "smoker": '["no", "former", "yes"]',
    "region": '["north", "south"]',
    "low": "0.02",
    "high": "0.1",
}
_OF_COSTS = {"label": '"costs"', "public": "{test = 0.2}", "target_range": "[-60_000, 60_000]"}


def declared(draft):
    """Replace all placeholders in the draft of a problem file."""
    values, lines = _DECLARED, []
    if "PersonalizedRidge" in draft:
        values = _DECLARED | _OF_COSTS
    for line in draft.replace('missing = "error"', 'missing = "middle"').splitlines():
        key = line.split(" = ")[0]
        if ' = "?"' not in line:
            lines.append(line)
        elif key in values:
            lines.append(f"{key} = {values[key]}")
    return "\n".join(lines)


TWO_SELLERS = """
kind = "market"
title = "Two sellers"
[data]
source = "inline"
features = [[1.0], [-1.0]]
labels = [1, -1]
[prior]
family = "uniform"
low = 0
high = 1
[sellers]
sensitivities = [0.1, 0.6]
[objective]
gamma = [0.1]
mu = [1]
sigma = [1.0]
[learner]
regularization = [0.1]
[naive]
eta_range = [0.1, 10]
"""


def for_each(cases):
    """Run all cases in one test, and add the failing case to the error message."""

    def decorate(test):
        def with_every_case():
            for case in cases:
                try:
                    test(*case)
                except BaseException as error:
                    error.add_note(f"with {case!r}")
                    raise

        with_every_case.__name__ = test.__name__
        with_every_case.__doc__ = test.__doc__
        return with_every_case

    return decorate
