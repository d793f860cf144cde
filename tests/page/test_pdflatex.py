"""pdfLaTeX compiles a report's tables, whatever their text."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from convexmarket.lab.report.model import Report, Section, Table
from convexmarket.lab.report.render import write_folder

HOSTILE = r"\input{/etc/passwd} 50% & $x_1$ #1 ~ ^ {} [a] *, -- --- << '' `` ,, \\ \end{table}"
SIGNS = "γ ε ηψΛΣ × ≤ ≥ ≠ ≈ ∞ 10⁻¹² x₁ – — − ± · → ‖a‖ Zoë Łódź Ørsted ß 中 🎲 ½ © ’quoted‘ …"
DOCUMENT = r"""\documentclass{article}
\usepackage[utf8]{inputenc}
\usepackage[T1]{fontenc}
\usepackage{lmodern}
\usepackage[a4paper,margin=12mm]{geometry}
\usepackage{booktabs,longtable}
\begin{document}
"""
KNOWN = "".join(map(chr, [*range(0x20, 0x7F), *range(0xA0, 0x2300)]))


def find_latex() -> str | None:
    """Return pdfLaTeX if it has the packages that the tables need."""
    latex, find = shutil.which("pdflatex"), shutil.which("kpsewhich")
    if latex is None or find is None:
        return None
    needed = ["booktabs.sty", "longtable.sty", "geometry.sty", "lmodern.sty"]
    found = subprocess.run([find, *needed], capture_output=True, text=True, check=False)
    return latex if found.returncode == 0 else None


def test_pdflatex_compiles_all_tables(tmp_path: Path) -> None:
    latex = find_latex()
    if latex is None:
        pytest.skip("no pdflatex with booktabs on this machine")
    text = f"{HOSTILE} {SIGNS}"
    offers = pd.DataFrame(
        {"who": [text, "[1] first", "* second"], "payment": [-1234.5, 2.5e-9, np.nan]}
    )
    signs = pd.DataFrame({"sign": list(KNOWN), "twice": [2 * sign for sign in KNOWN]})
    tables = (
        Table("offers", f"Offers {text}", offers, {"who": text, "payment": "a long payment"}),
        Table("signs", "Every sign below U+2300.", signs, rows_shown=len(signs)),
        Table("empty", "Nothing", pd.DataFrame({"a": [], "b": []})),
        Table("nothing", "Not even columns", pd.DataFrame()),
        Table("words", "Words", pd.DataFrame({HOSTILE: ["long words " * 30], "b": [HOSTILE]})),
    )
    report = Report(f"Title {HOSTILE}", (text,), (Section(text, body=tables),), {})
    folder = write_folder(report, tmp_path / "report", ["tex"]).parent
    (folder / "all.tex").write_text(
        DOCUMENT + "".join(f"\\input{{tables/{one.name}}}\n" for one in tables) + "\\end{document}"
    )
    command = [latex, "-halt-on-error", "-interaction=nonstopmode", "-no-shell-escape"]
    done = subprocess.run(
        [*command, f"-output-directory={tmp_path}", "all.tex"],
        cwd=folder,
        capture_output=True,
        encoding="latin-1",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert (tmp_path / "all.pdf").read_bytes().startswith(b"%PDF")
    assert "Missing character" not in (tmp_path / "all.log").read_text(encoding="latin-1")
