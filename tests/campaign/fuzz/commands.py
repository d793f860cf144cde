"""The command line: absurd arguments end in a message and an exit code."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from typer.testing import CliRunner

from convexmarket.cli import app
from tests.campaign.fuzz.lists import tables
from tests.campaign.fuzz.running import Target, require

WORDS = st.one_of(
    st.sampled_from(
        [
            "",
            "-1",
            "0",
            "1e308",
            "nan",
            "inf",
            "-inf",
            "1",
            "2.5",
            "x",
            "uniform:0,2",
            "uniform:1,0",
            "beta:2,5,0,2",
            "empirical:/nowhere",
            "exponential:1",
            "lognormal:-1,1",
            "id",
            "sensitivity",
            "\N{LATIN SMALL LETTER E WITH ACUTE}",
            "--",
            "--cap",
            "1e-320",
            "../..",
            ".",
        ]
    ),
    st.text(max_size=5),
)
FLAGS = [
    "--mu",
    "--sigma",
    "--gamma",
    "--cap",
    "--prior",
    "--id-column",
    "--sensitivity-column",
    "--eta-range",
]


@st.composite
def price_commands(draw: Any) -> tuple[bytes, list[str]]:
    """Draw a list and options of ``convexmarket price``, one or two of them odd."""
    data, _ = draw(tables())
    options = {"--mu": "1", "--sigma": "1", "--gamma": "0.5", "--prior": "uniform:0,2"}
    for flag in draw(st.lists(st.sampled_from(FLAGS), max_size=2)):
        options[flag] = draw(WORDS)
    words = [word for pair in options.items() for word in pair]
    if "--eta-range" in options:
        words.insert(words.index("--eta-range") + 2, draw(WORDS))
    if draw(st.integers(0, 9)) == 0:
        words.append(draw(WORDS))
    return data, words


def check_price(case: tuple[bytes, list[str]]) -> str:
    """Run the command; both files are written, or neither and the reason is said."""
    data, words = case
    with tempfile.TemporaryDirectory() as folder:
        file, offers = Path(folder, "sellers.csv"), Path(folder, "offers.csv")
        file.write_bytes(data)
        result = CliRunner().invoke(app, ["price", str(file), "--out", str(offers), *words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        written = sorted(path.name for path in Path(folder).iterdir())
        if result.exit_code == 0:
            require(
                written == ["offers.certificate.json", "offers.csv", "sellers.csv"],
                "files",
                written,
            )
            return "accepted"
        require(result.exit_code in (1, 2), "exit code", result.exit_code)
        require(result.output.strip(), "no word about what is wrong")
        require(written == ["sellers.csv"], "half-written files", written)
    return "refused"


TARGETS = [Target("commands", price_commands(), check_price, 20.0)]
