"""An index of reports: a page and a README over the folders of reports in one folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convexmarket.data.files import read_limited
from convexmarket.errors import DataError, ParameterError
from convexmarket.io import write_together
from convexmarket.lab.report.render import (
    MARKDOWN,
    PAGE,
    html_environment,
    markdown_environment,
    page_script,
)
from convexmarket.lab.report.results import RESULTS, is_text, read_json
from convexmarket.lab.result import LARGEST_FILE

__all__ = ["write_index"]

README = "README.md"
MARK = "Written by: convexmarket report --index"
PICTURE = re.compile(r"\]\((figures/[a-z0-9_-]+\.png)\)")
SHOWN_VERSIONS = ("convexmarket", "cvxpy", "python")


@dataclass(frozen=True)
class Entry:
    """One report as the index shows it; ``picture`` lies in its folder."""

    folder: str
    title: str
    kind: str
    summary: str
    versions: str
    picture: str


def write_index(reports: str | Path, *, force: bool = True) -> Path:
    """Write an index over the reports in a folder, as a page and as Markdown.

    Parameters
    ----------
    reports : path
        A folder whose sub-folders are reports. Those without ``results.json`` are left out; those
        whose ``results.json`` cannot be read are listed as such.
    force : bool, default True
        Whether an existing page and README may be replaced.

    Returns
    -------
    pathlib.Path
        The page, ``reports/index.html``; next to it is ``reports/README.md``.

    Raises
    ------
    ParameterError
        If there is no such folder, it is a report itself, or a page or README exists and may not
        be replaced.
    """
    folder = Path(reports).resolve()
    _check(folder)
    entries, unreadable = [], {}
    for results in sorted(folder.glob(f"*/{RESULTS}")):
        if not is_text(results.parent.name):
            continue  # no page could link to it
        try:
            entries.append(_entry(results))
        except DataError as error:
            unreadable[results.parent.name] = str(error).replace(f"{results.parent}/", "")
    context = {
        "entries": entries,
        "unreadable": unreadable,
        "mark": MARK,
        "script": page_script(),
    }
    page = html_environment().get_template("reports.html.j2").render(context)
    readme = markdown_environment().get_template("reports.md.j2").render(context)
    write_together(
        {
            folder / PAGE: lambda file: file.write(page),
            folder / README: lambda file: file.write(readme),
        },
        force=force,
    )
    return folder / PAGE


def _check(folder: Path) -> None:
    """Refuse to write an index where there is no folder, or into a report."""
    if not folder.is_dir():
        raise ParameterError(f"there is no folder {folder}; name the folder that holds the reports")
    if (folder / RESULTS).exists():
        raise ParameterError(f"{folder} is a report itself; name the folder above it")


def _entry(results: Path) -> Entry:
    content = read_json(results)
    if isinstance(content, dict) and str(content.get("format")).startswith("convexmarket-report/"):
        versions = _mapping(content, "versions", results)
        return Entry(
            folder=results.parent.name,
            title=str(content.get("title")),
            kind="",
            summary=str(content.get("question") or content.get("finding")),
            versions=", ".join(f"{name} {versions.get(name)}" for name in SHOWN_VERSIONS),
            picture=_picture(results.parent),
        )
    problem = _mapping(content, "problem", results)
    provenance = _mapping(content, "provenance", results)
    versions = _mapping(provenance, "versions", results)
    return Entry(
        folder=results.parent.name,
        title=str(problem.get("title") or results.parent.name),
        kind=str(problem.get("kind", "")).replace("-", " "),
        summary=" ".join(str(problem.get("description", "")).split()),
        versions=", ".join(
            f"{name} {versions[name]}" for name in SHOWN_VERSIONS if name in versions
        ),
        picture=_picture(results.parent),
    )


def _mapping(content: Any, key: str, file: Path) -> Mapping[str, Any]:
    value = content.get(key) if isinstance(content, Mapping) else None
    if not isinstance(value, Mapping):
        raise DataError(f"{file} has no {key!r}; run the problem again")
    return value


def _picture(report: Path) -> str:
    """Return where the report's first figure is, or nothing if there is none."""
    try:
        found = PICTURE.search(read_limited(report / MARKDOWN, LARGEST_FILE).decode())
    except (OSError, ValueError):
        return ""
    return found[1] if found and (report / found[1]).is_file() else ""
