"""Commands that write a file."""

import convexmarket as cm

PRICE = ["--prior", "uniform:1,5", "--mu", "1", "--sigma", "100", "--gamma", "0.001"]
#: What is given before the file, and the option that names it.
WRITERS = {
    "price": (["price", "sellers.csv", *PRICE], "--out"),
    "online quote": (["online", "quote", "m", "--csv", "sellers.csv"], "--out"),
    "online backup": (["online", "backup", "m"], "--out"),
    "ledger export": (["ledger", "export", "books.sqlite"], "--out"),
    "ledger backup": (["ledger", "backup", "books.sqlite"], "--out"),
    "audit": (["audit", "--mechanism", "PersonalizedRidge"], "--out"),
    "init": (["init", "people.csv"], "--out"),
    "schema": (["schema"], "--out"),
}


def a_database(path):
    cm.Ledger.create(path).disconnect()
