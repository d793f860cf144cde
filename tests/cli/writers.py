"""Commands that write a file, and files of other kinds that may be in its place."""

import gzip

import numpy as np
from matplotlib import image

import convexmarket as cm

PRICE = ["--prior", "uniform:1,5", "--mu", "1", "--sigma", "100", "--gamma", "0.001"]
#: What is given before the file, and the option that names it.
WRITERS = {
    "price": (["price", "sellers.csv", *PRICE], "--out"),
    "online quote": (["online", "quote", "m", "--csv", "sellers.csv"], "--out"),
    "ledger export": (["ledger", "export", "books.sqlite"], "--out"),
    "audit": (["audit", "--mechanism", "PersonalizedRidge"], "--out"),
    "schema": (["schema"], "--out"),
}
CSV_OR_JSON = {"ledger export", "audit"}  # the name says which


def a_model():
    X, y = np.array([[0.1], [0.9]]), np.array([0.0, 0.5])
    return cm.PersonalizedRidge().fit(X, y, epsilon=[1.0, 2.0])


def a_database(path):
    cm.Ledger.create(path).disconnect()


def a_note(path):
    path.write_text("Call Ann, and Bob.\nThen Cid.\n")


FOREIGN = {
    "an SQLite database": a_database,
    "a PNG picture": lambda path: image.imsave(path, np.zeros((2, 2)), format="png"),
    "a gzip archive": lambda path: path.write_bytes(gzip.compress(b"rows")),
    "JSON of the format 'convexmarket-model'": lambda path: cm.save_model(
        a_model(), path.with_suffix(".JSON")
    ).rename(path),
    "HTML or XML": lambda path: path.write_text("<!doctype html><p>a, b</p>"),
    "no text": lambda path: path.write_bytes(b"a,b\n\x00,1\n"),
    "text that is no table": a_note,
}
