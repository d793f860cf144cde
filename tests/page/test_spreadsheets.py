"""LibreOffice finds no formulas in CSV files that the package writes."""

import shutil
import subprocess
import zipfile

import numpy as np
import pandas as pd
import pytest

from convexmarket.data.csv_cells import guarded, write_csv
from tests.data.test_csv_cells import DIALECTS, NASTY, PLAIN

OFFICE = shutil.which("soffice")


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """Return a function that converts a CSV file with a given separator to XML with LibreOffice."""
    folder = tmp_path_factory.mktemp("office")
    names = [*NASTY, *PLAIN, "Ann\r=1+1", "Ann\n=1+1", "\t=1+1"]
    with open(folder / "names.csv", "w", encoding="utf-8", newline="") as file:
        write_csv(pd.DataFrame({"number": np.arange(len(names)), "id": names, "after": 0.5}), file)
    with open(folder / "bare.csv", "w") as file:
        file.write("number,id\n1,=1+1\n")

    def convert(name, separator):
        out = folder / f"{name}-{separator}"
        subprocess.run(
            [OFFICE, f"-env:UserInstallation=file://{folder}/profile", "--headless",
             f"--infilter=CSV:{ord(DIALECTS[separator])},34,76,1", "--convert-to", "ods",
             "--outdir", out, folder / f"{name}.csv"],
            check=True, capture_output=True, timeout=300,
        )  # fmt: skip
        with zipfile.ZipFile(out / f"{name}.ods") as file:
            return file.read("content.xml").decode()

    return lambda name, separator: (convert(name, separator), names)


@pytest.mark.skipif(OFFICE is None, reason="needs LibreOffice")
@pytest.mark.parametrize("separator", DIALECTS)
def test_libreoffice_finds_no_formulas(converted, separator):
    content, names = converted("names", separator)
    assert "table:formula" not in content
    assert "Ann" in content
    if separator == "comma":
        assert content.count("<table:table-row") == len(names) + 1
        assert content.count('office:value-type="float"') == 2 * len(names)
        assert guarded("=1+1").replace("'", "&apos;") in content


@pytest.mark.skipif(OFFICE is None, reason="needs LibreOffice")
def test_libreoffice_finds_formulas_in_unguarded_cells(converted):
    """Check that the conversion to XML shows formulas in unguarded cells."""
    assert "table:formula" in converted("bare", "comma")[0]
