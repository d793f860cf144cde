"""Commands that write a file."""

import convexmarket as cm

PRICE = ["--prior", "uniform:1,5", "--mu", "1", "--sigma", "100", "--gamma", "0.001"]
#: What is given before the file, and the option that names it.
WRITERS = {
    "price": (["price", "sellers.csv", *PRICE], "--out"),
    "online quote": (["online", "quote", "m", "--csv", "sellers.csv"], "--out"),
    "online backup": (["online", "status", "m"], "--backup"),
    "ledger export": (["ledger", "books.sqlite"], "--export"),
    "ledger backup": (["ledger", "books.sqlite"], "--backup"),
    "audit": (["report", "--audit", "--mechanism", "PersonalizedRidge"], "--out"),
    "init": (["init", "people.csv"], "--out"),
    "schema": (["schema"], "--out"),
}


def a_database(path):
    cm.Ledger.create(path).disconnect()
