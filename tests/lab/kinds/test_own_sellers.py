"""Sellers of a file, in markets that a problem file declares whole: as if they were listed."""

import numpy as np
import pandas as pd
import pytest

from convexmarket.errors import DataError, ProblemFileError
from convexmarket.lab import report_of, run_problem
from convexmarket.lab.problem.loading import load_problem

MARKET = """
prior = {family = "uniform", low = 1, high = 5}
objective = {spread = {weight = 1.0}, noise = {weight = 2.0}, payments = {weight = 0.1}}
constraints = {group_share = {at_least = {south = 0.5}}}
"""
OWN = 'sellers = {file = "asks.csv", id = "Patient Nr", report = "Preis je ε", group = "Region"}'
LISTED = """sellers = {groups = [{name = "north", sensitivities = [1.25, 3.75]},
    {name = "south", sensitivities = [2.5, 4.5]}]}"""
VARIANTS = """kind = "variants"
title = "own"
{market}
[[variants]]
name = "one"
"""
ROWS = ["p1;1,25;north", "p2;3,75;north", "p3;2,5;south", "p4;4,5;south"]


def load(folder, form, sellers, rows=ROWS):
    header = "Patient Nr;Preis je ε;Region"
    (folder / "asks.csv").write_text("\n".join([header, *rows]), encoding="utf-8")
    path = folder / "market.toml"
    path.write_text(form.format(market=sellers + MARKET), encoding="utf-8")
    return load_problem(path)


@pytest.mark.parametrize("form", [VARIANTS], ids=["variants"])
def test_a_file_is_a_list(form, tmp_path) -> None:
    own, listed = (run_problem(load(tmp_path, form, sellers)) for sellers in (OWN, LISTED))
    columns = ["objective", "eta", "epsilon_max", "expected_payments", "n_bought"]
    np.testing.assert_array_equal(own.tables["points"][columns], listed.tables["points"][columns])
    if form is VARIANTS:
        assert "The reports come from asks.csv." in report_of(own).to_markdown()
        assert "The reports come from" not in report_of(listed).to_markdown()
        sellers = own.tables["sellers"]
        assert sellers.id.tolist() == ["p1", "p2", "p3", "p4"]
        assert sellers.group.tolist() == ["north", "north", "south", "south"]
        pd.testing.assert_frame_equal(own.tables["groups"], listed.tables["groups"])


@pytest.mark.parametrize(
    ("rows", "sellers", "error", "said"),
    [
        (["p1;9;north"], OWN, DataError, "outside the support [1, 5]"),
        (ROWS, OWN.replace("Region", "Regoin"), DataError, "Name one of them with sellers.group"),
        (ROWS, OWN.replace("Region", "Patient Nr"), ProblemFileError, "named twice"),
        (ROWS, 'sellers = {count = 3, id = "a"}', ProblemFileError, "columns of a file"),
        (ROWS, OWN.replace(', group = "Region"', ""), ProblemFileError, "sellers.group"),
        (ROWS, OWN.replace("asks", "none"), DataError, "No such file"),
    ],
)
def test_what_is_wrong_is_named(rows, sellers, error, said, tmp_path) -> None:
    with pytest.raises(error) as refused:
        run_problem(load(tmp_path, VARIANTS, sellers, rows))
    assert said in str(refused.value)
