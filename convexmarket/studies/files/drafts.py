"""Drafts of problem files for a user's table, from the names and types of its columns.

A draft does not contain cells or the number of rows, because these values are private.
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

#: Common column names for each role, in the order of preference.
_NAMES = {
    "id": ID_NAMES,
    "report": REPORT_NAMES,
    "label": ("label", "target", "outcome", "class", "diagnosis", "response", "result", "y"),
}
_DRAFT = """\
# Purchase from the sellers in a table. This file contains no cells of the table.
# Replace every "?" by a public value, fixed before reports and rows are read. The page
# docs/howto/choose.md explains the choice of the prior and of the weights.
#   convexmarket run FILE                 reports the error against the payments
#   convexmarket buy FILE --budget 50     writes the offers, the model and the certificate

kind = "market"
title = {title}

[data]
source = "{source}"
file = {file}   # relative to this file
{id}   # column of the sellers' ids; by default, line numbers
{report}   # column of the prices asked per unit of epsilon; by default, reports are simulated
{label}   # column to predict
{classes}missing = "error"   # for empty cells; or "middle" (of the range), or "indicator"
# Public rows are neither bought nor protected, so their owners must consent. Declare shares of
# the file, such as {{ {shares} }}, or files instead of shares.
public = "?"

# Declare the public range of each numeric feature, such as [18, 100], or the categories of a
# feature, such as ["no", "yes"], in quotes even if they are digits. Do not derive these values from
# the rows. Numbers outside the range are clipped. Undeclared categories raise an error unless
# "other" is declared. Remove columns that are not features.
[data.features]
{features}

[prior]
family = "uniform"   # publicly known distribution of the reports; also beta, lognormal, ...
low = "?"   # smallest price that a seller can ask, in your currency
high = "?"   # largest price

[objective]
gamma = [0.001, 0.003, 0.01]   # weight of the payments, in error per unit of currency
cap = 2.0   # largest weight of a row, in multiples of the average weight
{model}
[run]
seed = 0   # random seed of the public rows and of simulations
"""
_CLASS = """\
mu = [1.0]   # weight of the spread, a term that penalises purchases from few sellers
sigma = [30.0]   # weight of the noise that privacy requires

[learner]
regularization = [0.01, 0.03, 0.1]   # Lambda; run compares the values, buy requires one (--set)
draws = 15   # number of noise draws in run
"""
_REGRESSION = """\

[learner]
name = "PersonalizedRidge"
regularization = [0.1, 0.3, 1.0]   # lambda; run compares the values, buy requires one (--set)
target_range = "?"   # range [low, high] of the label, which is mapped to [-1, 1]
label_noise = 0.2   # estimated standard deviation of the label noise, on the scale [-1, 1]
coef_norm = 1.0   # estimated norm of the true coefficients, for labels on the scale [-1, 1]
"""


class Draft(NamedTuple):
    """Text of a drafted problem file, and the columns of the ids, reports and labels."""

    text: str
    roles: dict[str, str]


def draft_problem(path: str | Path, folder: str | Path, learns: Learnt | None = None) -> Draft:
    """Draft a problem file for a purchase of rows from a CSV or Parquet file.

    The draft contains the path of this file relative to ``folder``. ``learns`` is the type of the
    label. By default, labels with decimals are numbers, and other labels are classes.
    """
    path = Path(path)
    table = read_table(path)
    table = table if table.index.name is None else table.reset_index()
    if table.empty:
        raise DataError(f"{path}: no rows below the header; give one row per seller")
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
                key, hint = f"# {key}", f"left out, because columns of {sale[name]}s have this name"
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
    """Quote a string as in JSON, and escape the character DEL, as TOML requires."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
