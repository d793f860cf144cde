"""An index of reports: the finding of each in one sentence."""

from __future__ import annotations

from pathlib import Path

from convexmarket.errors import DataError, ParameterError
from convexmarket.io import write_together
from convexmarket.report.document import html_of, page
from convexmarket.report.results import RESULTS, read_content
from convexmarket.report.tables import escape_markdown

__all__ = ["write_index"]


def write_index(reports: str | Path, *, force: bool = True) -> Path:
    """Write an index of the reports in a folder, as ``index.html`` and ``README.md``.

    Parameters
    ----------
    reports : path
        A folder with reports as sub-folders. Reports that cannot be read are named as such.
    force : bool, default True
        Whether an existing index may be replaced.

    Returns
    -------
    pathlib.Path
        The page ``index.html``.

    Raises
    ------
    ParameterError
        If there is no such folder, it is a report itself, or an index exists and may not be
        replaced.
    """
    folder = Path(reports).resolve()
    if not folder.is_dir() or (folder / RESULTS).exists():
        raise ParameterError(f"{folder} is no folder of reports; name the folder above them")
    lines = {"index.html": "", "report.md": ""}
    for file in sorted(folder.glob(f"*/{RESULTS}")):
        name = file.parent.name
        try:
            content = read_content(file)
            title = str(content["title"])
            said = str(content["finding"] or content["question"])
        except (DataError, KeyError) as error:
            title, said = name, f"cannot be read: {error}".replace(f"{file.parent}/", "")
        for target in lines:
            link = f"[{escape_markdown(title)}](<{name}/{target}>)"
            lines[target] += f"- {link}: {escape_markdown(said)}\n"
    html = page("Reports", html_of(lines["index.html"]))
    markdown = f"# Reports\n\n{lines['report.md']}"
    texts = {"index.html": html, "README.md": markdown}
    contents = {folder / name: text.encode() for name, text in texts.items()}
    write_together(contents, force=force)
    return folder / "index.html"
