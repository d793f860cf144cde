"""A problem file for a table of the user's own, as far as the names of its columns tell.

Nothing that stands in a cell is written, nor how many there are: what everybody may know of the
columns is for the user to declare.
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
from convexmarket.lab.problem.limits import LONGEST_KEY, MOST_KEYS
from convexmarket.lab.problem.loading import UNDECLARED

__all__ = ["Draft", "draft_problem"]

#: What is learnt.
Learnt: TypeAlias = Literal["class", "number"]
#: What a column holds, as far as it is told: numbers that are all whole, numbers, dates, words.
Holds: TypeAlias = Literal["whole", "number", "date", "word"]

#: Rows that tell numbers from words.
FIRST_ROWS = 1_000
_IDS = (*ID_NAMES, "patient", "person", "participant", "subject", "customer", "user", "client")
_REPORTS = ("ask", "asking", "report", "reported_sensitivity", "sensitivity", "c", "cost")
_LABELS = ("label", "target", "outcome", "class", "diagnosis", "response", "result", "y", "price")
#: Names of ids by themselves, after the dots and blanks around them are removed.
_NUMBERS = ("nr", "no", "number")
#: What makes of "patient" the name of a column of ids, as in "Patient-Nr." or "patient_no".
_NUMBER_OF = re.compile(r"[\W_]+(id|nr|no|number|code)\W*$")
#: A day, perhaps with a time.
_DATE = r"\s*(\d{4}-\d\d?-\d\d?|\d\d?[./]\d\d?[./]\d{4})([ T].*)?"
#: Control characters that JSON leaves as they are, and TOML does not.
_UNESCAPED = re.compile("[\x7f]")


@dataclass(frozen=True)
class Draft:
    """A problem file that waits for what its user must declare.

    Attributes
    ----------
    text : str
        The file.
    roles : dict of str to str
        The columns that were guessed: which is the id, the report, the label.
    """

    text: str
    roles: dict[str, str]


def draft_problem(path: str | Path, folder: str | Path, learns: Learnt | None = None) -> Draft:
    """Return a problem file that buys the rows of a table.

    Parameters
    ----------
    path : path of a CSV file, or of a Parquet file (.parquet)
        Its header is read, and of the first rows whether they are numbers.
    folder : path
        Where the problem file will lie.
    learns : {"class", "number"}, optional
        What is learnt; a number where the label has decimals, by default.

    Raises
    ------
    DataError
        If the file cannot be read, or its columns cannot be named in a problem file.
    """
    path = Path(path)
    holds = _parquet_columns(path) if path.suffix == ".parquet" else _csv_columns(path)
    named = {name: what for name, what in holds.items() if name}
    long = [name for name in named if len(name) > LONGEST_KEY]
    if long or len(named) > MOST_KEYS:
        what = f"a name of {len(long[0])} characters" if long else f"{len(named)} columns"
        raise DataError(
            f"{path}: {what} is more than a problem file holds ({LONGEST_KEY} and {MOST_KEYS});"
            " leave away, or rename, columns"
        )
    roles, sale = _roles(list(named))
    if learns is None:
        decimal = named.get(roles.get("label", "")) == "number"
        learns = "number" if decimal else "class"
    seen = Path(os.path.relpath(path.resolve(), Path(folder).resolve())).as_posix()
    lines = [
        *_beginning(path.name, learns),
        *_data(seen, path.suffix == ".parquet", roles, learns),
        *_features(named, roles, sale),
        *_market(learns),
    ]
    return Draft("\n".join(lines) + "\n", roles)


def _csv_columns(path: Path) -> dict[str, Holds]:
    table = read_texts(path, most_rows=FIRST_ROWS)
    if table.empty:
        raise DataError(f"{path}: there is no row under a header; give one row per seller")
    return {str(name): _held(table[name]) for name in table if name}


def _held(cells: pd.Series[str]) -> Holds:
    filled = cells[~blank(cells)]
    numbers = numbers_in(filled)
    if filled.empty or not np.isfinite(numbers).all():
        dates = not filled.empty and filled.str.fullmatch(_DATE).all()
        return "date" if dates else "word"
    return "whole" if (numbers % 1 == 0).all() else "number"


def _parquet_columns(path: Path) -> dict[str, Holds]:
    from pyarrow import types

    def held(kind: object) -> Holds:
        if types.is_integer(kind):
            return "whole"
        if types.is_date(kind) or types.is_timestamp(kind):
            return "date"
        return "number" if types.is_floating(kind) or types.is_decimal(kind) else "word"

    with open_parquet(path) as stored:
        return {field.name: held(field.type) for field in stored.schema_arrow}


def _roles(columns: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return id, report and label, where names tell; and other columns that are about the sale."""
    sale: dict[str, str] = dict(roles_of(columns))
    found: dict[str, str] = {}
    for role, common in (("id", _IDS), ("report", _REPORTS), ("label", _LABELS)):
        called = {name.strip().lower(): name for name in reversed(columns)}
        exact = [called[name] for name in common if name in called]
        if role == "id":
            exact += [
                name
                for name in columns
                if _NUMBER_OF.sub("", name.strip().lower()) in common
                or name.strip(" .").lower() in _NUMBERS
            ]
        alike = [name for name, known in sale.items() if known == role]
        choices = [name for name in exact or alike if role == "label" or not _is_price(name)]
        if choices:
            found[role] = choices[0]
    if "report" not in found and "label" in found and not _is_price(found["label"]):
        prices = [name for name in columns if _is_price(name)]
        found |= {"report": prices[0]} if prices else {}
    return found, {name: role for name, role in sale.items() if name not in found.values()}


def _is_price(name: str) -> bool:
    """Whether a column is a price: the label, unless another column is called one."""
    return name.strip().lower() == "price"


def _text(text: str) -> str:
    """Return a string of TOML."""
    written = json.dumps(text, ensure_ascii=False)
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", written)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _lines(entries: list[tuple[str, str]]) -> list[str]:
    """Return lines with their comments below one another."""
    width = min(44, max((len(line) for line, comment in entries if comment), default=0))
    return [f"{line:<{width}}   # {comment}" if comment else line for line, comment in entries]


def _beginning(name: str, learns: Learnt) -> list[str]:
    other = "number" if learns == "class" else "class"
    return [
        "# What is to be bought from the people of a table, and for how much.",
        f'# Every "{UNDECLARED}" is for you to declare: what everybody may know, fixed before',
        "# reports and rows are looked at. Nothing of the table's cells was written here.",
        "#",
        "#   convexmarket run FILE                 tries it: error against payments",
        "#   convexmarket buy FILE --budget 50     buys: offers, model, certificate",
        "#",
        "# docs/howto/choose.md says how to choose the prior, mu, sigma and gamma.",
        "",
        f'kind = "market"   # learns a {learns}; a {other}: convexmarket init --learns {other}',
        f"title = {_text(f'Buying the rows of {name}')}",
        "",
    ]


def _data(file: str, parquet: bool, roles: dict[str, str], learns: Learnt) -> list[str]:
    entries = [
        ("[data]", ""),
        (f'source = "{"parquet" if parquet else "csv"}"', ""),
        (f"file = {_text(file)}", "from where this file lies"),
    ]
    for role, comment in (
        ("id", "who sells; without it sellers are called by their lines"),
        ("report", "what each asks for a unit of epsilon; without it reports are simulated"),
    ):
        if role in roles:
            entries.append((f"{role} = {_text(roles[role])}", comment))
        else:
            entries.append((f'# {role} = "..."', comment))
    label = _text(roles.get("label", UNDECLARED))
    below = "" if "label" in roles else "; take its line away below"
    entries.append((f"label = {label}", f"the column that is predicted{below}"))
    if learns == "class":
        entries.append(
            (f'classes = "{UNDECLARED}"', 'its two labels, negative and positive: ["no", "yes"]')
        )
    entries.append(
        (
            'missing = "error"',
            'refuses empty cells; "middle" is that of the range, "indicator" adds a feature',
        )
    )
    shares = "{ validation = 0.2, test = 0.2 }" if learns == "class" else "{ test = 0.2 }"
    files = 'validation = "v.csv" and test = "t.csv"' if learns == "class" else 'test = "t.csv"'
    return [
        *_lines(entries),
        "# Rows that are public, as their owners agreed: they are not bought, and nothing protects",
        f"# them. {shares} draws such shares of the file by run.seed;",
        f"# {files}, in place of public, name files of their own.",
        f'public = "{UNDECLARED}"',
        "",
    ]


def _features(columns: dict[str, Holds], roles: dict[str, str], sale: dict[str, str]) -> list[str]:
    entries = []
    for name, what in columns.items():
        if name in roles.values():
            continue
        if name in sale:
            entries.append(
                (f'# {_key(name)} = "{UNDECLARED}"', f"left out: its name says {sale[name]}")
            )
            continue
        if what == "date":
            hint = "left out: a date; write it as a number, such as years, in the table"
            entries.append((f'# {_key(name)} = "{UNDECLARED}"', hint))
            continue
        hint = "categories" if what == "word" else "[low, high]"
        entries.append((f'{_key(name)} = "{UNDECLARED}"', hint))
    return [
        "# What is public of each feature: the range of a number, [18, 100], or the categories of",
        '# a word, ["no", "yes"], in quotes also where they are digits. It may not be read off the',
        "# rows. A number outside is clipped; a word that is not declared is refused, unless you",
        '# declare "other", which stands for all that are not. Take away what is no feature, and',
        "# what people ask above all: columns that are not named here are not looked at.",
        "[data.features]",
        *_lines(entries),
        "",
    ]


def _market(learns: Learnt) -> list[str]:
    prior = [
        ("[prior]", ""),
        ('family = "uniform"', "how reports are distributed, as everybody knows; also beta, ..."),
        (f'low = "{UNDECLARED}"', "the least and the most that anybody asks, in your currency"),
        (f'high = "{UNDECLARED}"', ""),
        ("", ""),
        ("[objective]", ""),
        ("gamma = [0.001, 0.003, 0.01]", "the price of money, in error per unit of currency"),
    ]
    ending = [("", ""), ("[run]", ""), ("seed = 0", "of the public rows, and of simulations")]
    if learns == "class":
        own = [
            ("mu = [1.0]", "weight of the spread: fewer sellers, a worse sample"),
            ("sigma = [30.0]", "weight of the noise that privacy costs"),
            ("cap = 2.0", "no row weighs more than so many times the average"),
            ("", ""),
            ("[learner]", ""),
            ('name = "PrivateLogisticRegression"', ""),
            ("regularization = [0.03]", "Lambda; run tries several, buy needs one"),
            ("draws = 15", "of the noise, for run"),
            ("", ""),
            ("[naive]", "run compares with a buyer who counts neither spread nor noise"),
            ("eta_range = [10.0, 1000.0]", "least and most epsilon that it buys in all"),
        ]
    else:
        own = [
            ("cap = 2.0", "no row weighs more than so many times the average"),
            ("", ""),
            ("[learner]", ""),
            ('name = "PersonalizedRidge"', ""),
            ("regularization = [0.3]", "run tries several, buy needs one"),
            (f'target_range = "{UNDECLARED}"', "[low, high] of the label; mapped to [-1, 1]"),
            ("label_noise = 0.2", "a guess at its noise, on that scale"),
            ("coef_norm = 1.0", "a guess at the norm of the true coefficients, on that scale"),
        ]
    return _lines([*prior, *own, *ending])
