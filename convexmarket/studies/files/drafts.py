"""Drafts of problem files for a user's table, from the names and the types of its columns.

A draft contains neither cells nor their number, because the user declares public facts.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from convexmarket.data.columns import ID_NAMES, REPORT_NAMES, bare, roles_of
from convexmarket.data.tables import read_table
from convexmarket.errors import DataError
from convexmarket.studies.files.loading import UNDECLARED

Learnt: TypeAlias = Literal["class", "number"]

#: Common names of the columns of each role, the most likely first.
_NAMES = {
    "id": ID_NAMES,
    "report": REPORT_NAMES,
    "label": ("label", "target", "outcome", "class", "diagnosis", "response", "result", "y"),
}
_DRAFT = """\
# A purchase from the sellers in a table; this file contains no cell of the table.
# Declare every "?": public facts, fixed before reports and rows are read (docs/howto/choose.md).
#   convexmarket run FILE                 tries it: error against payments
#   convexmarket buy FILE --budget 50     buys: offers, model, certificate

kind = "market"
title = {title}

[data]
source = "{source}"
file = {file}   # relative to this file
{id}   # the sellers; without it their ids are line numbers
{report}   # price asked per unit of epsilon; without it reports are simulated
{label}   # the column to predict
{classes}missing = "error"   # at an empty cell; or "middle" (of the range), or "indicator"
# Public rows are neither bought nor protected; their owners must agree. Shares of the file such as
# {{ {shares} }}, or files in place of the shares
public = "?"

# Public facts of each feature: the range of a number, [18, 100], or the categories of a word,
# ["no", "yes"], in quotes even if they are digits. Do not take them from the rows. A number outside
# is clipped; an undeclared word is refused, unless "other" is declared. Remove columns that are
# not features.
[data.features]
{features}

[prior]
family = "uniform"   # distribution of the reports, common knowledge; also beta, lognormal, ...
low = "?"   # the least and the most that a seller asks, in your currency
high = "?"

[objective]
gamma = [0.001, 0.003, 0.01]   # weight of the payments, in error per unit of currency
cap = 2.0   # largest weight of a row, in multiples of the average
{model}
[run]
seed = 0   # of the public rows, and of simulations
"""
_CLASS = """\
mu = [1.0]   # weight of the spread: fewer sellers, a worse sample
sigma = [30.0]   # weight of the noise that privacy costs

[learner]
regularization = [0.01, 0.03, 0.1]   # Lambda; run compares them, buy needs one: --set
draws = 15   # of the noise, for run

[naive]   # run compares with a buyer who counts neither spread nor noise
eta_range = [10.0, 1000.0]   # bounds on the total epsilon that it buys
"""
_REGRESSION = """\

[learner]
name = "PersonalizedRidge"
regularization = [0.1, 0.3, 1.0]   # run compares them, buy needs one: --set
target_range = "?"   # [low, high] of the label; mapped to [-1, 1]
label_noise = 0.2   # an estimate of its noise, on that scale
coef_norm = 1.0   # an estimate of the norm of the true coefficients, on that scale
"""


class Draft(NamedTuple):
    """Draft of a problem file, and the columns of id, report and label."""

    text: str
    roles: dict[str, str]


def draft_problem(path: str | Path, folder: str | Path, learns: Learnt | None = None) -> Draft:
    """Draft a problem file in a folder for the purchase of the rows of a CSV or Parquet file.

    ``learns`` is the kind of prediction; by default a number if the label has decimals.
    """
    path = Path(path)
    table = read_table(path)
    table = table if table.index.name is None else table.reset_index()
    if table.empty:
        raise DataError(f"{path}: no rows below a header; give one row per seller")
    columns = list(map(str, table.columns))
    sale, roles = roles_of(columns), dict[str, str]()
    called = {bare(name): name for name in columns}
    for role, common in _NAMES.items():
        likely = [called[name] for name in common if name in called]
        likely += [name for name, known in sale.items() if known == role]
        roles |= {role: likely[0]} if likely else {}
    lines = []
    for name in columns:
        if name not in roles.values():
            key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)
            hint = "[low, high]" if table[name].dtype.kind in "if" else "categories"
            if name in sale:
                key, hint = f"# {key}", f"left out: its name is that of a column of {sale[name]}s"
            lines.append(f'{key} = "{UNDECLARED}"   # {hint}')
    label = roles.get("label")
    has_decimals = label is not None and table[label].dtype.kind == "f"
    is_class = not has_decimals if learns is None else learns == "class"
    given = {role: f"{role} = {_text(column)}" for role, column in roles.items()}
    text = _DRAFT.format(
        title=_text(f"Buying the rows of {path.name}"),
        source="parquet" if path.suffix == ".parquet" else "csv",
        file=_text(Path(os.path.relpath(path.resolve(), Path(folder).resolve())).as_posix()),
        id=given.get("id", '# id = "..."'),
        report=given.get("report", '# report = "..."'),
        label=given.get("label", 'label = "?"'),
        classes='classes = "?"   # negative and positive: ["no", "yes"]\n' if is_class else "",
        shares="validation = 0.2, test = 0.2" if is_class else "test = 0.2",
        features="\n".join(lines),
        model=_CLASS if is_class else _REGRESSION,
    )
    return Draft(text, roles)


def _text(text: str) -> str:
    """Quote a string for TOML, which escapes one more character than JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
