"""Define functions for the tests of several commands."""

import re

from typer.testing import CliRunner

import convexmarket as cm
from convexmarket import cli

PRICE = ["--prior", "uniform:1,5", "--mu", "1", "--sigma", "100", "--gamma", "0.001"]
#: Commands that write a file, and the options that set the path of the file.
WRITERS = {
    "price": (["price", "sellers.csv", *PRICE], "--out"),
    "online quote": (["online", "quote", "m", "--csv", "sellers.csv"], "--out"),
    "online backup": (["online", "status", "m"], "--backup"),
    "ledger export": (["ledger", "books.sqlite"], "--export"),
    "ledger backup": (["ledger", "books.sqlite"], "--backup"),
    "audit": (["report", "--audit", "--mechanism", "PersonalizedRidge"], "--out"),
    "init": (["init", "people.csv"], "--out"),
}


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def plain(text):
    """Remove the colours and line breaks from a printed text."""
    return " ".join(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).split())


def draw_nothing(figure, kind, name):
    """Replace ``figures.saved``, because drawing is slow and other tests cover figures."""
    return b""


def one_setting_each(*settings):
    """Return the options of a run with one market and two draws, and the given settings."""
    few = ["objective.gamma=[0.01]", "objective.mu=[1.0]", "objective.sigma=[0.1]"]
    few += ["learner.regularization=[1.0]", "learner.draws=2", "naive.grid=1", *settings]
    return [part for setting in few for part in ("--set", setting)]


def a_database(path):
    cm.Ledger.create(path).disconnect()
