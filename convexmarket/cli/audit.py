"""Attacks on the package's own guarantees: ``convexmarket report --audit``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from convexmarket.cli.consoles import err, errors_in_one_line, out, progress_bars
from convexmarket.errors import ParameterError

if TYPE_CHECKING:
    import pandas as pd

    from convexmarket.lab.privacy_audits import MechanismAudit

__all__ = ["write_audit"]

#: Exit code where a guarantee was refuted.
REFUTED = 3


def write_audit(seed: int, file: Path | None, mechanisms: Sequence[str], force: bool) -> None:
    """Attack the privacy guarantees of every learner and release, and show what was measured.

    Parameters
    ----------
    seed : int
        Of weights, starts and noise.
    file : path, optional
        CSV or JSON file for the table of audits.
    mechanisms : sequence of str
        The learners and releases to audit; all if there is none.
    force : bool
        Whether a file of another kind may be replaced.
    """
    from convexmarket.io import check_place, write_together
    from convexmarket.lab.privacy_audits import audit_mechanisms, audit_table

    with errors_in_one_line():
        if file is not None and file.suffix not in (".csv", ".json"):
            raise ParameterError(f"--out {file}; give a name that ends in .csv or .json")
        if file is not None:
            check_place(file, force=force)
        with progress_bars() as advance:
            audits = audit_mechanisms(
                seed, advance, mechanisms=mechanisms, found=None if err.is_terminal else _tell
            )
        table = audit_table(audits)
        if file is not None:
            write_together({file: _text(table, file.suffix).encode("utf-8")}, force=force)
    out.print(_shown(table))
    refuted = len(table) - int(table["passed"].sum())
    out.print(
        f"{refuted} of {len(table)} guarantees refuted; the largest loss found is "
        f"{table['ratio'].max():.3f} of what is guaranteed.",
        highlight=False,
    )
    for one in audits:
        if not one.audit.passed:
            out.print(one.audit.statement(), markup=False)
    if file is not None:
        out.print(f"Wrote {file}", highlight=False, soft_wrap=True, markup=False)
    if not table["passed"].all():
        raise typer.Exit(REFUTED)


def _tell(one: MechanismAudit) -> None:
    """Say where no progress bar is seen how far it is."""
    from convexmarket.lab.privacy_audits import audit_table

    line = audit_table([one]).iloc[0]
    verdict = "holds" if line["passed"] else "refuted"
    err.print(
        f"{one.name}: {one.settings}: {line['ratio']:.3f} of what is claimed, {verdict}",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )


def _text(table: pd.DataFrame, suffix: str) -> str:
    from convexmarket.data.csv_cells import write_csv
    from convexmarket.report.results import plain

    if suffix == ".csv":
        text = StringIO()
        write_csv(table, text)
        return text.getvalue()
    return json.dumps(plain(table.to_dict("records")), indent=2) + "\n"


def _shown(table: pd.DataFrame) -> Table:
    shown = Table("mechanism", "method")
    for name in ("claimed", "found", "ratio"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("verdict", no_wrap=True)
    for line in table.itertuples():
        shown.add_row(
            f"{line.mechanism}: {line.settings}",
            str(line.method),
            f"{line.claimed:.4g}",
            f"{line.measured:.4g}",
            f"{line.ratio:.3f}",
            "holds" if line.passed else "[bold red]refuted[/bold red]",
        )
    return shown
