"""``Runs``, the tidy tables that a study returns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self

import pandas as pd

from convexmarket.deal import versions
from convexmarket.display import Shown
from convexmarket.errors import DataError, ParameterError
from convexmarket.io import Content, write_together
from convexmarket.report import Report
from convexmarket.report.results import RESULTS, read_content, restored_frame, stored_frame, tidy
from convexmarket.studies import online_page, solver_page, study_page

FORMAT = "convexmarket-runs/1"
_PAGES: dict[str, Any] = {"study": study_page, "solvers": solver_page, "online": online_page}


@dataclass(frozen=True, eq=False)
class Runs(Shown):
    """Result of a study, stored in tidy tables with declared keys.

    Attributes
    ----------
    kind : {"study", "solvers", "online"}
    keys : mapping of str to tuple of str
        For each table, the columns that identify a row.
    tables : mapping of str to DataFrame
        The first table is ``runs``. :meth:`Study.run` and :func:`compare_solvers` list all tables.
        Columns contain booleans, numbers or text.
    facts : mapping
        Other results as JSON values, such as caveats, seeds and versions.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.2, 0.4], cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=1)
    >>> cm.Study([market]).run(progress=False).to_frame()[["market", "eta"]].round(2)
         market   eta
    0  market 1  1.92
    """

    kind: str
    keys: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, pd.DataFrame]
    facts: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self.kind not in _PAGES:
            raise DataError(f"kind is {self.kind!r}; it must be {' or '.join(_PAGES)}")
        tables = {name: tidy(name, table) for name, table in self.tables.items()}
        object.__setattr__(self, "tables", tables)
        facts = {"versions": versions(), **self.facts}
        object.__setattr__(self, "facts", json.loads(json.dumps(facts)))

    def to_frame(self, table: str = "runs") -> pd.DataFrame:
        """Return a copy of a table.

        Raises
        ------
        ParameterError
            If the table does not exist.
        """
        if table not in self.tables:
            known = ", ".join(map(repr, self.tables))
            raise ParameterError(f"table must be one of {known}, got {table!r}")
        return self.tables[table].copy()

    def statements(self) -> list[str]:
        """Describe the results, such as the solved and the failed runs, in sentences."""
        return list(_PAGES[self.kind].statements(self))

    def plot(self, ax: Any = None) -> Any:
        """Plot the main figure, such as errors against payments, or the times of solvers."""
        return _PAGES[self.kind].plot(self, ax)

    def report(self, title: str) -> Report:
        """Return a :class:`~convexmarket.Report` with the statements, tables and figures.

        Parameters
        ----------
        title : str
        """
        report = Report(title, settings=self.facts)
        _PAGES[self.kind].fill(report, self)
        return report

    def write(self, folder: str | PathLike[str], *, force: bool = False) -> Path:
        """Write ``results.json``, with long tables in Parquet files, and return its path.

        Parameters
        ----------
        folder : path
            Created if needed.
        force : bool, default False
            Whether to replace existing files. If False, an existing file causes a ParameterError.
        """
        place, contents = Path(folder), dict[Path, Content]()
        written: Any = {"format": FORMAT, "kind": self.kind, "facts": self.facts, "tables": {}}
        for name, table in self.tables.items():
            stored, content = stored_frame(table)
            written["tables"][name] = {"keys": list(self.keys[name]), **stored}
            if content:
                contents[place / f"tables/{name}.parquet"] = content
        contents[place / RESULTS] = f"{json.dumps(written)}\n".encode()
        write_together(contents, force=force)
        return place / RESULTS

    @classmethod
    def read(cls, folder: str | PathLike[str]) -> Self:
        """Read the files of :meth:`write`, and restore numbers exactly.

        Raises
        ------
        DataError
            If a file is missing, damaged or changed.
        """
        place = Path(folder)
        written = read_content(place / RESULTS, FORMAT)
        try:
            stored = written["tables"].items()
            tables = {name: restored_frame(Path(name).name, each, place) for name, each in stored}
            keys = {name: tuple(each["keys"]) for name, each in stored}
            return cls(written["kind"], keys, tables, written["facts"])
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, DataError):
                raise
            name = type(error).__name__
            raise DataError(f"{place / RESULTS} is damaged ({name}); repeat Runs.write") from None

    def __str__(self) -> str:
        return "\n".join(self.statements())

    def __repr__(self) -> str:
        rows = len(next(iter(self.tables.values())))
        return f"<Runs of kind {self.kind!r}, {rows:,} rows: {', '.join(self.tables)}>"
