"""pdfLaTeX compiles report tables that contain arbitrary text."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm

HOSTILE = r"\input{/etc/passwd} 50% & $x_1$ #1 ~ ^ {} [a] *, -- --- << '' `` ,, \\ \end{table}"
SIGNS = "γ ε η ψ Λ σ × ∞ – — Zoë Łódź Ørsted ß ½ © ’quoted‘ …"
DOCUMENT = r"""\documentclass{article}
\usepackage[utf8]{inputenc}
\usepackage[T1]{fontenc}
\usepackage{lmodern}
\usepackage[a4paper,margin=12mm]{geometry}
\usepackage{booktabs,longtable}
\begin{document}
"""


def find_latex() -> str | None:
    """Return the path of pdfLaTeX if it has the required packages."""
    latex, find = shutil.which("pdflatex"), shutil.which("kpsewhich")
    if latex is None or find is None:
        return None
    needed = ["booktabs.sty", "longtable.sty", "geometry.sty", "lmodern.sty"]
    result = subprocess.run([find, *needed], capture_output=True, text=True, check=False)
    return latex if result.returncode == 0 else None


def test_pdflatex_compiles_all_tables(tmp_path: Path) -> None:
    latex = find_latex()
    if latex is None:
        pytest.skip("pdflatex with booktabs is not installed")
    text = f"{HOSTILE} {SIGNS}"
    offers = pd.DataFrame(
        {"who": [text, "[1] first", "* second"], "payment": [-1234.5, 2.5e-9, np.nan]}
    )
    report = cm.Report(f"Title {HOSTILE}")
    headers = {"who": text, "payment": "a long payment"}
    report.add(offers, f"Offers {text}", name="offers", headers=headers)
    report.add(pd.DataFrame({"a": [], "b": []}), "Nothing", name="empty")
    words = pd.DataFrame({HOSTILE: ["long words " * 30], "b": [HOSTILE]})
    report.add(words, "Words", name="words")
    tables = report.tables
    folder = report.write(tmp_path / "report", ["tex"]).parent
    (folder / "all.tex").write_text(
        DOCUMENT
        + "".join(f"\\input{{tables/{single.name}}}\n" for single in tables)
        + "\\end{document}"
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
