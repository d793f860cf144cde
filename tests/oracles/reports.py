"""Check report tables that scripts of the papers or problem files compute.

A spec contains the name of an experiment and a layout for each table:

- ``keys``: columns that identify a row;
- ``columns``: for each column a relative tolerance (0 for texts and truth values), ``"noisy"`` for
  a mean of draws, or a noisy statistic and the column with the draws;
- ``order``: columns that sort rows with equal keys. Rows with equal keys are stored as a summary,
  and noisy values as a mean and its standard error;
- ``where``: the keys of the compared rows, if not all rows are compared;
- ``choices``: columns that depend on noisy validation errors. If a choice differs from the stored
  choice, only noisy columns are compared.

Other columns, such as times and solver statistics, are not compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from convexmarket.cli.experiments import report_names
from convexmarket.studies.files.loading import load_file, subproblems_of
from problems.papers.__main__ import NAMES, PARTS, experiment
from tests import PROBLEMS
from tests.oracles.averages import apart_by_chance

Layout = dict[str, Any]
Frames = Mapping[str, pd.DataFrame]

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
#: Current names of experiments whose names differ in the stored records.
RENAMED = {"pareto": "limits-promise", "variants-limits": "limits-variants"}
#: Setting of Lambda with which the tables were stored.
LAMBDAS = "learner.regularization=[0.01, 0.03, 0.1]"
SETTINGS = {
    "wdbc": ["objective.mu=[1.0, 3.0]", "objective.sigma=[3.0, 10.0, 30.0]", LAMBDAS],
    "synthetic": ["objective.mu=[0.3, 1.0, 3.0]", "objective.sigma=[0.3, 1.0, 3.0]", LAMBDAS],
}
#: A relative tolerance refers to at least this fraction of the largest value of the column.
SMALL = 1e-3


def answer(spec: dict[str, Any]) -> dict[str, Any]:
    """Run a script of ``problems/papers`` or a problem file. Return the tables to compare."""
    script = RENAMED.get(spec["problem"], spec["problem"]).replace("-", "_")
    if script in [*NAMES, *chain(*PARTS.values())]:
        return select(spec["tables"], _renamed(experiment(script).compute()))
    changes = SETTINGS.get(spec["problem"], [])
    problem = load_file(report_names(PROBLEMS)[spec["problem"]], ["run.jobs=1", *changes])
    return select(spec["tables"], _renamed(problem.perform(subproblems_of, progress=False).tables))


def _renamed(tables: Frames) -> Frames:
    """Rename the tables of a market without a learner to their stored names."""
    if "groups" not in tables:
        return tables
    renamed = {name: table.rename(columns={"market": "variant"}) for name, table in tables.items()}
    return {**renamed, "points": renamed["runs"]}


def select(layouts: dict[str, Layout], frames: Frames) -> dict[str, Any]:
    """Select the cells of tables that the layouts describe."""
    return {
        name: _select(layout, frames)
        for name, layout in layouts.items()
        if layout["table"] in frames
    }


def _select(layout: Layout, frames: Frames) -> dict[str, Any]:
    keys, order = layout["keys"], layout.get("order", [])
    frame = frames[layout["table"]]
    missing = {*keys, *order, *layout["columns"]} - set(frame.columns)
    if missing:
        return {"missing": sorted(missing)}
    for key, values in layout.get("where", {}).items():
        frame = frame[frame[key].isin(values)]
    frame = frame.assign(**{key: [_sortable(cell) for cell in frame[key]] for key in keys})
    frame = frame.sort_values([*keys, *order], kind="stable").reset_index(drop=True)
    groups = frame.groupby(keys, sort=True, dropna=False)
    rows = groups.head(1) if order else frame
    result: dict[str, Any] = {
        "keys": {key: _plain(rows[key]) for key in keys},
        "choices": _choices(layout, rows, frames),
        "count": groups.size().tolist() if order else [],
        "values": {},
        "errors": {},
    }
    for column, rule in layout["columns"].items():
        if order and rule == "noisy":
            result["values"][column] = groups[column].mean().tolist()
            result["errors"][column] = groups[column].sem().tolist()
        elif order:
            result["values"][column] = [_summary(part) for _, part in groups[column]]
        else:
            result["values"][column] = _plain(rows[column])
        if isinstance(rule, dict):
            result["errors"][column] = _errors(rule, keys, rows, frames)
    return result


def _sortable(cell: Any) -> Any:
    """Convert a cell to a sort key. Floats are rounded to nine digits."""
    if isinstance(cell, float):
        return float(f"{cell:.9g}")
    return str(cell) if isinstance(cell, list | dict) else cell


def _plain(values: pd.Series) -> list[Any]:
    cells = values.tolist()
    if values.dtype.kind in "fiub":
        return cells
    return ["" if cell is None or cell != cell else str(cell) for cell in cells]


def _summary(values: pd.Series) -> Any:
    """Return moments, quantiles and weighted sums that identify a long column."""
    if values.dtype.kind not in "fiub":
        return hashlib.sha256("\n".join(_plain(values)).encode()).hexdigest()[:16]
    numbers = values.to_numpy(dtype=float)
    place = np.arange(numbers.size)
    numbers = numbers[np.isfinite(numbers)]
    place = place[: numbers.size]
    checks = [np.cos(step * place) ** 2 @ numbers / max(place.size, 1) for step in (1.0, 2.3, 0.01)]
    quantiles = np.quantile(numbers, QUANTILES).tolist() if numbers.size else []
    spread = [numbers.mean(), numbers.std()] if numbers.size else []
    return [values.size - numbers.size, *spread, *quantiles, *checks]


def _choices(layout: Layout, rows: pd.DataFrame, frames: Frames) -> list[str]:
    """Return the text of each row's values in the columns ``choices``."""
    if not layout.get("choices"):
        return []
    table, *columns = layout["choices"]
    chosen = frames.get(table)
    if chosen is None:
        return [""] * len(rows)
    keys = [key for key in layout["keys"] if key in chosen]
    chosen = chosen.assign(**{key: [_sortable(cell) for cell in chosen[key]] for key in keys})
    outcome = rows[keys].merge(chosen[keys + columns], on=keys, how="left")
    return [" ".join(f"{cell:.6g}" for cell in row) for row in outcome[columns].to_numpy()]


def _errors(rule: Layout, keys: list[str], rows: pd.DataFrame, frames: Frames) -> list[float]:
    """Compute the standard error of a statistic from the table of draws."""
    drawn = frames.get(rule["table"])
    if drawn is None:
        return [float("nan")] * len(rows)
    keys = [key for key in keys if key in drawn]
    drawn = drawn.assign(**{key: [_sortable(cell) for cell in drawn[key]] for key in keys})
    spread = drawn.groupby(keys, dropna=False)[rule["column"]].agg(["std", "count"]).reset_index()
    outcome = rows[keys].merge(spread, on=keys, how="left")
    share = 1.0 / np.sqrt(outcome["count"])
    if rule["statistic"] == "std":  # twice the error of normal draws, because tails are heavy
        share = 2.0 / np.sqrt(2.0 * outcome["count"])
    return (outcome["std"] * share).tolist()


def compare(spec: dict[str, Any], stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Compare stored tables with new tables according to the layouts."""
    texts = []
    for name, layout in spec["tables"].items():
        outcome = new.get(name)
        if outcome is None or "missing" in outcome:
            texts.append(f"{name}: missing" + (f" {outcome['missing']}" if outcome else ""))
        else:
            texts += [f"{name}.{text}" for text in _table(layout, stored[name], outcome)]
    return texts


def _table(layout: Layout, stored: dict[str, Any], new: dict[str, Any]) -> list[str]:
    texts = [
        f"{key}: the keys of the rows differ"
        for key, cells in stored["keys"].items()
        if not _same_keys(cells, new["keys"][key])
    ]
    if stored["count"] != new["count"]:
        texts.append("count: the numbers of rows differ")
    if texts:
        return texts
    equal = [True] * len(next(iter(stored["keys"].values()), []))
    if stored["choices"]:
        equal = [a == b or not b for a, b in zip(stored["choices"], new["choices"], strict=True)]
    for column, rule in layout["columns"].items():
        values = stored["values"][column], new["values"][column]
        if isinstance(rule, float | int):
            texts += _cells(column, *values, equal, rule)
        else:
            old, now = stored["errors"][column], new["errors"][column]
            now = [b if b == b else a for a, b in zip(old, now, strict=True)]
            means = {"mean": values[0], "error": old}, {"mean": values[1], "error": now}
            texts += apart_by_chance(*means, column)
    return texts


def _same_keys(stored: list[Any], new: list[Any]) -> bool:
    if len(stored) != len(new):
        return False
    return all(
        a == b or (a != a and b != b) or (isinstance(a, float) and np.isclose(a, b, rtol=1e-8))
        for a, b in zip(stored, new, strict=True)
    )


def _cells(
    column: str, stored: list[Any], new: list[Any], equal: list[bool], tolerance: float
) -> list[str]:
    """Compare the stored and new cells of a column, which are numbers, texts or summaries."""
    pairs = [(place, stored[place], new[place]) for place in np.flatnonzero(equal)]
    numbers = [a for _, a, _ in pairs if isinstance(a, float) and np.isfinite(a)]
    largest = max(map(abs, numbers), default=0.0)
    texts = []
    for place, a, b in pairs:
        if a == b or isinstance(a, str | bool) or isinstance(b, str | bool):
            differ = a != b
        else:
            single, other = np.atleast_1d(a).astype(float), np.atleast_1d(b).astype(float)
            scale = np.max(np.abs(single), initial=SMALL * largest, where=np.isfinite(single))
            differ = single.shape != other.shape or not np.allclose(
                single, other, rtol=0.0, atol=tolerance * scale, equal_nan=True
            )
        if differ:
            texts.append(f"{column}[{place}]: stored {a!r}, now {b!r}"[:300])
    return texts
