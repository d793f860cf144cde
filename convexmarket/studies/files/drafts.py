"""Drafts of problem files for a user's table, from the names and the types of its columns.

A draft holds nothing of the cells, nor their number: the user declares what is public.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd

from convexmarket.data.columns import ID_NAMES, roles_of
from convexmarket.data.csv_rows import numbers_in, read_texts
from convexmarket.data.files import open_parquet
from convexmarket.data.lists import blank
from convexmarket.errors import DataError
from convexmarket.studies.files.loading import UNDECLARED

__all__ = ["Draft", "draft_problem"]

Learnt: TypeAlias = Literal["class", "number"]
#: The type of a column: whole numbers, numbers, truth values, dates, or words.
Type: TypeAlias = Literal["whole", "number", "bool", "date", "word"]

#: Characters of a name, and columns, that a problem file holds.
_LONGEST, _MOST = 200, 1_000
#: Rows from which the type of a CSV column follows.
_FIRST_ROWS = 1_000
#: Names of the columns by role, the likeliest first.
_NAMES = {
    "id": (*ID_NAMES, "patient", "person", "participant", "subject", "customer", "user", "client"),
    "report": ("ask", "asking", "report", "reported_sensitivity", "sensitivity", "c", "cost"),
    "label": (
        *("label", "target", "outcome", "class", "diagnosis", "response", "result", "y", "price"),
    ),
}
#: A number of a person: "Nr.", or "Patient-Nr.", whose first part is the name of an id.
_NUMBER = re.compile(r"(^|[\W_]+)(id|nr|no|number|code)\W*$")
_DATE = r"\s*(\d{4}-\d\d?-\d\d?|\d\d?[./]\d\d?[./]\d{4})([ T].*)?"
_TRUTH = r"(?i)\s*(true|false)\s*"

_DRAFT = """\
# A purchase from the people of a table.
# Declare every "{undeclared}": public facts, fixed before reports and rows are read.
# Nothing of the table's cells is in this file.
#
#   convexmarket run FILE                 tries it: error against payments
#   convexmarket buy FILE --budget 50     buys: offers, model, certificate
#
# docs/howto/choose.md explains how to choose the prior, mu, sigma and gamma.

kind = "market"
title = {title}

[data]
source = "{source}"
file = {file}   # relative to this file
{id}   # the sellers; without it they are named by their lines
{report}   # what each asks per unit of epsilon; without it reports are simulated
label = {label}   # the column that is predicted
{classes}missing = "error"   # at an empty cell; or "middle" (of the range), or "indicator"
# Public rows, as their owners agreed, are not bought and not protected. Shares of the file such as
# {shares}, or files: {files}
public = "{undeclared}"

# What is public of each feature: the range of a number, [18, 100], or the categories of a word,
# ["no", "yes"], in quotes even if they are digits. Do not read it off the rows. A number outside
# is clipped; a word that is not declared is refused, unless "other" is declared. Remove columns
# that are not features; columns that are not named here are not read.
[data.features]
{features}

[prior]
family = "uniform"   # distribution of the reports, common knowledge; also beta, lognormal, ...
low = "{undeclared}"   # the least and the most that a seller asks, in your currency
high = "{undeclared}"

[objective]
gamma = [0.001, 0.003, 0.01]   # the price of money, in error per unit of currency
{model}
[run]
seed = 0   # of the public rows, and of simulations
"""
_CLASS = """\
mu = [1.0]   # weight of the spread: fewer sellers, a worse sample
sigma = [30.0]   # weight of the noise that privacy costs
cap = 2.0   # largest weight of a row, in multiples of the average

[learner]
name = "PrivateLogisticRegression"
regularization = [0.01, 0.03, 0.1]   # Lambda; run compares them, buy needs one: --set
draws = 15   # of the noise, for run

[naive]   # run compares with a buyer who counts neither spread nor noise
eta_range = [10.0, 1000.0]   # least and most epsilon that it buys in all
"""
_REGRESSION = """\
cap = 2.0   # largest weight of a row, in multiples of the average

[learner]
name = "PersonalizedRidge"
regularization = [0.1, 0.3, 1.0]   # run compares them, buy needs one: --set
target_range = "{undeclared}"   # [low, high] of the label; mapped to [-1, 1]
label_noise = 0.2   # an estimate of its noise, on that scale
coef_norm = 1.0   # an estimate of the norm of the true coefficients, on that scale
"""


@dataclass(frozen=True)
class Draft:
    """A problem file whose user has to declare what is public.

    Attributes
    ----------
    text : str
        The file.
    roles : dict of str to str
        The recognised columns of id, report and label.
    """

    text: str
    roles: dict[str, str]


def draft_problem(path: str | Path, folder: str | Path, learns: Learnt | None = None) -> Draft:
    """Draft a problem file that buys the rows of a table.

    Parameters
    ----------
    path : path of a CSV file, or of a Parquet file (.parquet)
        The header is read, and the first rows for the types of the columns.
    folder : path
        The folder of the problem file.
    learns : {"class", "number"}, optional
        What is predicted; by default a number if the label has decimals.

    Raises
    ------
    DataError
        If the file cannot be read, or its columns cannot be named in a problem file.
    """
    path = Path(path)
    parquet = path.suffix == ".parquet"
    types = {name: what for name, what in (_parquet if parquet else _csv)(path).items() if name}
    longest = max(map(len, types), default=0)
    if longest > _LONGEST or len(types) > _MOST:
        what = f"a name of {longest} characters" if longest > _LONGEST else f"{len(types)} columns"
        raise DataError(
            f"{path}: {what} is more than a problem file holds ({_LONGEST} and {_MOST}); "
            "remove, or rename, columns"
        )
    roles, sale = _roles(list(types))
    if learns is None:
        learns = "number" if types.get(roles.get("label", "")) == "number" else "class"
    given = {role: f"{role} = {_text(roles[role])}" for role in roles}
    is_class = learns == "class"
    text = _DRAFT.format(
        undeclared=UNDECLARED,
        title=_text(f"Buying the rows of {path.name}"),
        source="parquet" if parquet else "csv",
        file=_text(Path(os.path.relpath(path.resolve(), Path(folder).resolve())).as_posix()),
        id=given.get("id", '# id = "..."'),
        report=given.get("report", '# report = "..."'),
        label=_text(roles.get("label", UNDECLARED)),
        classes=f'classes = "{UNDECLARED}"   # negative and positive: ["no", "yes"]\n'
        if is_class
        else "",
        shares="{ validation = 0.2, test = 0.2 }" if is_class else "{ test = 0.2 }",
        files='{ validation = "v.csv", test = "t.csv" }' if is_class else '{ test = "t.csv" }',
        features="\n".join(
            _feature(name, what, sale.get(name))
            for name, what in types.items()
            if name not in roles.values()
        ),
        model=_CLASS if is_class else _REGRESSION.format(undeclared=UNDECLARED),
    )
    return Draft(text, roles)


def _feature(name: str, what: Type, sale: str | None) -> str:
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)
    if sale is not None:
        return f'# {key} = "{UNDECLARED}"   # left out: its name is that of a column of {sale}s'
    if what == "date":
        return f'# {key} = "{UNDECLARED}"   # left out: a date; write it as a number, such as years'
    hints = {"word": "categories", "bool": "[false, true]"}
    return f'{key} = "{UNDECLARED}"   # {hints.get(what, "[low, high]")}'


def _csv(path: Path) -> dict[str, Type]:
    table = read_texts(path, most_rows=_FIRST_ROWS)
    if table.empty:
        raise DataError(f"{path}: there is no row under a header; give one row per seller")
    return {str(name): _type(table[name]) for name in table if name}


def _type(cells: pd.Series[str]) -> Type:
    filled = cells[~blank(cells)]
    if filled.empty:
        return "word"
    numbers = numbers_in(filled)
    if np.isfinite(numbers).all():
        return "whole" if (numbers % 1 == 0).all() else "number"
    if filled.str.fullmatch(_TRUTH).all():
        return "bool"
    return "date" if filled.str.fullmatch(_DATE).all() else "word"


def _parquet(path: Path) -> dict[str, Type]:
    from pyarrow import types

    def held(kind: object) -> Type:
        if types.is_integer(kind):
            return "whole"
        if types.is_boolean(kind):
            return "bool"
        if types.is_date(kind) or types.is_timestamp(kind):
            return "date"
        return "number" if types.is_floating(kind) or types.is_decimal(kind) else "word"

    with open_parquet(path) as stored:
        return {field.name: held(field.type) for field in stored.schema_arrow}


def _roles(columns: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the columns of id, report and label, and other columns that concern the sale."""
    sale: dict[str, str] = dict(roles_of(columns))
    prices = [name for name in columns if name.strip().lower() == "price"]
    roles: dict[str, str] = {}
    for role, common in _NAMES.items():
        called = {name.strip().lower(): name for name in reversed(columns)}
        named = [called[name] for name in common if name in called]
        if role == "id":
            stems = {name: _NUMBER.sub("", name.strip().lower()) for name in columns}
            numbers = [name for name in columns if stems[name] != name.strip().lower()]
            named += [name for name in numbers if stems[name] in ("", *common)]
        choices = named or [name for name, known in sale.items() if known == role]
        choices = [name for name in choices if role == "label" or name not in prices]
        if choices:
            roles[role] = choices[0]
    if "report" not in roles and roles.get("label") not in [None, *prices] and prices:
        roles["report"] = prices[0]
    return roles, {name: role for name, role in sale.items() if name not in roles.values()}


def _text(text: str) -> str:
    """Return a string of TOML, which escapes one more character than JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
