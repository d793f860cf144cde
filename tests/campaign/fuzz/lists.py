"""Lists of sellers: CSV files in all dialects with known contents, and damaged bytes."""

from __future__ import annotations

import codecs
import csv
import io
import tempfile
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.data.csv_rows import read_texts
from tests.campaign.fuzz.running import Target, require
from tests.lists import price_list

PRIOR = cm.Uniform(0, 2)
BUYER = {"mu": 1.0, "sigma": 1.0, "gamma": 0.5}
HEADERS = [
    ["id", "sensitivity"], ["ID", " Sensitivity "], ["name", "cost"], ["seller", "c"],
    ["id", "sensitivity", "note"], ["note", "id", "sensitivity"], ["id", "id", "sensitivity"],
    ["id", "x"], ["id"], [], ["sensitivity", "id"], ["id", "sensitivity", "sensitivity"],
]  # fmt: skip
NAMES = st.one_of(
    st.sampled_from(["Ann", "Bob", "1", "01", "1.0", "NA", "nan", "null", "True", "é", "a,b", "a;b",
                     'say "x"', " Ann", "Ann ", "", " ", "\u00a0", "-", "#1", "=1+1", "a\tb"]),
    st.integers(0, 99).map(str),
)  # fmt: skip
NUMBERS = st.one_of(
    st.floats(0, 2).map(lambda x: f"{x:.6g}"),
    st.floats(0, 2).map(repr),
    st.sampled_from(
        ["0", "2", "0.5", "1e-3", "1E-3", ".5", "5.", "+1", " 1 ", "1.", "0,5", "1,25", "1,250",
         "0,250", "1_0", "0x1", "1e", "", " ", "nan", "inf", "-1", "-0", "True", "true", "1/2",
         "50%", "1'000", "1 000", "\u0661", "1\u00a0", "1e-400", "2.0000000001", "1d0", "None",
         "€1", "1.5.2", "1,5,2", "0.1\x00", "\uff11", "1e308"]
    ),
)  # fmt: skip


@st.composite
def tables(draw: Any) -> tuple[bytes, list[tuple[str, str]]]:
    """Draw a CSV file, and the ids and numbers in it as text."""
    odd = st.integers(0, 11).map(lambda k: k == 7)
    header = list(draw(st.sampled_from(HEADERS)) if draw(odd) else HEADERS[0])
    width = len(header)
    comma = draw(st.integers(0, 5)) == 0
    rows = []
    for k in range(draw(st.integers(1, 6))):
        row = [""] * max(width, 1)
        row[0] = draw(NAMES) if draw(odd) else f"{draw(NAMES)}{k}"
        if width > 1:
            text = draw(NUMBERS) if draw(odd) else f"{draw(st.floats(0.001, 2)):.5f}"
            row[-1 if header[-1].strip().lower() in ("sensitivity", "cost", "c", "x") else 0] = (
                text.replace(".", ",") if comma else text
            )
        if draw(odd) and draw(odd):
            row = draw(st.sampled_from([[], row[:1], [*row, "more"], [*row, ""], ["", ""]]))
        rows.append(row)
    file = io.StringIO()
    writer = csv.writer(
        file,
        delimiter=":" if draw(odd) else draw(st.sampled_from(",;\t|")),
        quotechar="'" if draw(odd) else '"',
        lineterminator=draw(st.sampled_from(["\n", "\r\n", "\r"])),
        quoting=draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])),
    )
    writer.writerows([header, *rows])
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
    if draw(odd):
        encoding = draw(st.sampled_from(["latin-1", "cp1252", "utf-32", "utf-16-le"]))
    data = file.getvalue().encode(encoding, errors="replace")
    written = [(row[0], row[-1]) for row in rows if row] if width == 2 else []
    plain = header == ["id", "sensitivity"] and all(len(row) == 2 for row in rows)
    return data, written if plain else []


@st.composite
def bytes_of_tables(draw: Any) -> tuple[bytes, list[tuple[str, str]]]:
    """Draw a CSV file with some of its bytes changed."""
    data, _ = draw(tables())
    data = bytearray(data)
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.integers(0, max(len(data), 1)))
        match draw(st.integers(0, 4)):
            case 0:
                data[place : place + 1] = draw(st.binary(max_size=2))
            case 4:
                data[place:place] = draw(
                    st.sampled_from([b"0", b"1", b".", b" ", b"x", b"-", b"e"])
                )
            case 1:
                del data[place : place + draw(st.integers(1, 9))]
            case 2:
                data[place:place] = draw(
                    st.sampled_from(
                        [
                            *(bytes([byte]) for byte in b"\"\x00,;\n\r\xff\x1a#'\\"),
                            *(b'""', b"\n\n", b"\xfe\xff", b"\xef\xbb\xbf"),
                        ]
                    )
                )
            case 3:
                data[place:place] = data[: draw(st.integers(0, 30))]
    return bytes(data), []


def number_of(text: str, decimal_comma: bool) -> float:
    return float(text.strip().replace(",", ".") if decimal_comma else text.strip())


def surplus_by_definition(
    costs: np.ndarray, tops: np.ndarray, mu: float, sigma: float, gamma: float
) -> tuple[np.ndarray, np.ndarray]:
    """Compute epsilon and rents of the papers' market from the definition on a fine grid of eta.

    At a fixed eta the weights are ``(tau - t*psi)_+ * ||a||/mu`` with ``||(tau - t*psi)_+|| = mu``.
    The rent is the increase of the optimal objective from the report to the top, over gamma*psi'.
    """

    def best(psi: np.ndarray) -> tuple[float, np.ndarray]:
        def solve(eta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            c = gamma * eta[:, None] * psi
            low, high = c.min(1), c.min(1) + mu
            for _ in range(200):
                tau = 0.5 * (low + high)
                far = np.sqrt((np.maximum(tau[:, None] - c, 0) ** 2).sum(1)) > mu
                high, low = np.where(far, tau, high), np.where(far, low, tau)
            margin = np.maximum(high[:, None] - c, 0)
            return high + sigma / eta, margin, eta

        grid = np.geomspace(1e-4, 1e8, 241)
        for _ in range(12):
            value, margin, eta = solve(grid)
            k = int(np.argmin(value))
            grid = np.geomspace(grid[max(k - 1, 0)], grid[min(k + 1, grid.size - 1)], 41)
        return value[k], eta[k] * margin[k] / margin[k].sum()

    value, epsilon = best(costs)
    rents = np.zeros(costs.size)
    for i in np.flatnonzero(epsilon > 1e-9 * epsilon.max()):
        dearest = costs.copy()
        dearest[i] = tops[i]
        rents[i] = (best(dearest)[0] - value) / (2 * gamma)
    return epsilon, rents


def check_list(case: tuple[bytes, list[tuple[str, str]]], priced: bool = True) -> str:
    """Read a list; compare its numbers with the written ones and prices with the definition."""
    data, written = case
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sellers.csv")
        path.write_bytes(data)
        read = read_texts(path)
        require(all(isinstance(x, str) for x in read.to_numpy().ravel()), "not read as text")
        offers = price_list(path, PRIOR, **BUYER)
    table = offers.offers.reset_index(names="id").assign(
        virtual_cost=offers.market.sellers.virtual_costs
    )
    check_numbers(data, table, written)
    require(np.isfinite(table.drop(columns="id").to_numpy(dtype=float)).all(), "not finite")
    if priced:
        check_prices(table)
    return "accepted"


def check_numbers(data: bytes, table: Any, written: list[tuple[str, str]]) -> None:
    """Check that every id and number equals the written one and occurs in the file."""
    sensitivities = table["ask"].tolist()
    if written:
        remaining = [(name, text) for name, text in written if name.strip() or text.strip()]
        require(len(remaining) == len(table), "rows are missing or invented")
        require([name.strip() for name, _ in remaining] == table["id"].tolist(), "ids changed")
        comma = any("," in text for _, text in remaining)
        result = [number_of(text, comma) for _, text in remaining]
        require(np.allclose(result, sensitivities, rtol=1e-14, atol=0), "numbers changed")
    text = unicodedata.normalize("NFC", data.decode(encoding_of(data)))  # the stored normal form
    for name in table["id"]:
        require(name.replace('"', "") in text.replace('"', ""), "an id that is not in the file")


def encoding_of(data: bytes) -> str:
    """Return the encoding that a byte-order mark at the start of a file indicates."""
    if data[:4] in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE):
        return "utf-32"
    return "utf-16" if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"


def check_prices(table: Any) -> None:
    """Compare the prices with the definition."""
    sensitivities = table["ask"].to_numpy()
    psi = 2 * sensitivities
    if psi.min() < 1e-4 or len(table) > 5:
        return
    epsilon, rents = surplus_by_definition(psi, np.full(psi.size, 4.0), **BUYER)
    scale = epsilon.max()
    require(np.allclose(table["epsilon"], epsilon, atol=2e-4 * scale, rtol=2e-4), "wrong epsilon")
    require(np.allclose(table["surplus"], rents, atol=1e-5 * scale, rtol=1e-5), "wrong surplus")


TARGETS = [
    Target("list tables", tables(), lambda case: check_list(case, priced=False)),
    Target("list prices", tables(), check_list),
    Target("list bytes", bytes_of_tables(), lambda case: check_list(case, priced=False), weight=5),
]
