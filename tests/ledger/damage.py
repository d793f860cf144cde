"""Build databases, damage them, and check the results of later steps."""

import json
import shutil
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import convexmarket as cm
from convexmarket.errors import ConvexMarketError, DataError
from convexmarket.privacy import Guarantee

POLICY = cm.OnlinePolicy(cm.Uniform(1, 5), 600, mu=1, sigma=1, gamma=1)
#: Part of the id of every seller, which error messages must not quote.
PRIVATE = "HIV-positive"
PAGE, SECTOR = 4096, 512
TABLES = ("balance", "sales", "releases", "charges")


@dataclass
class State:
    """Database in a folder, with its contents before the damage."""

    folder: Path
    name: str
    holds: dict[str, Any] = field(default_factory=dict)

    @property
    def is_market(self):
        return self.name == "market.sqlite"


def seller(k):
    return f"{PRIVATE} {k}"


def everything(place):
    """Return all contents that the methods of a market or a ledger expose."""
    if isinstance(place, cm.OnlineMarket):
        ledger, answer = place.ledger, {"offers": place.offers(), "problem": place.problem}
        answer |= {"released": place.released, "counts": place.counts()}
        answer["plans"] = [(plan.after, plan.policy.to_dict()) for plan in place.plans()]
    else:
        ledger, answer = place, {}
    return answer | {table: getattr(ledger, table)() for table in TABLES}


def differs(result, expected):
    """Return the names of the contents that differ from the original contents."""
    return [
        name
        for name, value in expected.items()
        if not (
            result[name].equals(value) if isinstance(value, pd.DataFrame) else result[name] == value
        )
    ]


def names(accepted):
    return json.dumps(accepted["id"].tolist())


def build_market(folder, n, closed=False):
    """Create a market in which a third of the sellers accepted and a third declined."""
    with cm.OnlineMarket.create(folder, POLICY, '{"text": "of a problem"}') as market:
        reports = 1 + 0.002 * (np.arange(n) % 50)
        list(market.quote_many((seller(k), report) for k, report in enumerate(reports)))
        for k in range(0, n, 3):
            market.accept(seller(k))
            market.decline(seller(k + 1))
        if closed:
            market.close(names, lapse=True)
        return State(folder, "market.sqlite", everything(market))


def build_ledger(folder, n):
    folder.mkdir()
    ids = [seller(k) for k in range(n)]
    with cm.Ledger.create(folder / "sold.sqlite", delta=1e-6) as ledger:
        ledger.sell(ids, np.linspace(0.5, 2, n), np.linspace(0, 1, n), source="a list")
        ledger.sell(ids[:5], 0.5, 0.1, release="model 2")
        for release in ("model 1", "model 2"):
            guarantee = Guarantee(np.full(n, 0.2), 1e-7, "a model", "tight", ("rows are bounded",))
            ledger.account(ids, release).charge(guarantee)
        return State(folder, "sold.sqlite", everything(ledger))


def interrupt(state, folder):
    """Copy a database and its journal during a transaction, which the next reader rolls back."""
    raw = sqlite3.connect(state.folder / state.name, isolation_level=None)
    raw.executescript("PRAGMA journal_mode = PERSIST; PRAGMA cache_size = 1; BEGIN IMMEDIATE")
    raw.executemany(
        "INSERT INTO sales SELECT 1 + max(number), ?, 1.0, 1.0, NULL, NULL, ? FROM sales",
        [(f"{PRIVATE} and late {k % 7}", "now " * 20) for k in range(400)],
    )
    shutil.copytree(state.folder, folder)
    raw.execute("ROLLBACK")
    raw.close()
    return State(folder, state.name, state.holds)


def build_states(folder):
    """Create the databases that are damaged later, and return a dictionary of them."""
    states = {
        "a small market": build_market(folder / "small", 30),
        "a market": build_market(folder / "market", 300),
        "a closed market": build_market(folder / "closed", 60, closed=True),
        "a ledger": build_ledger(folder / "ledger", 200),
    }
    for name in ("a market", "a ledger"):
        interrupted = interrupt(states[name], folder / f"{name} interrupted")
        states[f"{name} with a hot journal"] = interrupted
    return states


# ------------------------------------------------------------------ damage


def place_in(content, rng, length):
    """Draw an offset in the file, with probability 1/2 among the offsets of nonzero bytes."""
    end = max(1, len(content) - length)
    if rng.random() < 0.5:
        written = np.flatnonzero(np.frombuffer(content, dtype=np.uint8)[:end])
        return int(rng.choice(written)) if written.size else 0
    return int(rng.integers(end))


def flip_bits(content, rng):
    for _ in range(rng.integers(1, 5)):
        content[place_in(content, rng, 1)] ^= 1 << int(rng.integers(8))


def overwrite(content, rng):
    length = int(2 ** rng.uniform(0, 9))
    start = place_in(content, rng, length)
    fill = [bytes(length), b"\xff" * length, rng.bytes(length), b"0" * length]
    content[start : start + length] = fill[rng.integers(len(fill))]


def copy_within(content, rng):
    """Overwrite a block of the file with a copy of another block."""
    length = int(2 ** rng.uniform(3, 9))
    source, target = (place_in(content, rng, length) for _ in range(2))
    content[target : target + length] = content[source : source + length]


def truncate(content, rng):
    unit = int(rng.choice([1, SECTOR, PAGE]))
    del content[unit * int(rng.integers(len(content) // unit + 1)) :]


def swap_pages(content, rng):
    single, other = (PAGE * int(k) for k in rng.integers(max(1, len(content) // PAGE), size=2))
    first, second = content[single : single + PAGE], content[other : other + PAGE]
    content[single : single + PAGE], content[other : other + PAGE] = second, first


def zero_sectors(content, rng):
    start = SECTOR * int(rng.integers(max(1, len(content) // SECTOR)))
    content[start : start + SECTOR * int(rng.integers(1, 4))] = bytes(SECTOR)


DAMAGE = [flip_bits, overwrite, copy_within, truncate, swap_pages, zero_sectors]


def damaged_copy(state, folder, rng):
    """Copy a database, and damage the database or its hot journal."""
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(state.folder, folder)
    damage, file = DAMAGE[rng.integers(len(DAMAGE))], folder / state.name
    journal = folder / f"{state.name}-journal"
    if journal.exists() and rng.random() < 0.4:
        file = journal
    content = bytearray(file.read_bytes())
    damage(content, rng)
    file.write_bytes(content)
    return State(folder, state.name, state.holds), f"{damage.__name__} in {file.name}"


# ------------------------------------------------------------------ outcomes


def use(state):
    """Call all functions of a database. Return a description of undetected damage, or None.

    Results must equal those of the intact database. Every error must be a DataError that does not
    quote private values.
    """
    try:
        return use_market(state) if state.is_market else use_ledger(state)
    except DataError as error:
        return "an error quotes a private value" if PRIVATE in str(error) else None
    except ConvexMarketError as error:
        return f"{type(error).__name__}: {error}"


def use_market(state):
    with cm.OnlineMarket(state.folder) as market:
        wrong = differs(everything(market), state.holds)
        if wrong:
            return f"altered: {wrong}"
        offers, n = state.holds["offers"], len(state.holds["offers"])
        first = offers.iloc[0]
        if market.quote(first["id"], first["sensitivity"]).payment != first["payment"]:
            return "altered: an offer that is requested again"
        if state.holds["released"] is None:
            offer = market.quote(seller(n), 1.05)
            if (offer.number, offer.epsilon, offer.payment) != (n + 1, *POLICY.quote(1.05)):
                return "altered: a new offer"
            market.accept(seller(n))
            accepted = [*offers["id"][offers["status"] == "accepted"], seller(n)]
            if json.loads(market.close(names, lapse=True)) != accepted:
                return "altered: the release"
    with cm.OnlineMarket(state.folder) as market:
        if not market.offers()["epsilon"][:n].equals(offers["epsilon"]):
            return "altered: offers of the closed market"
    return None


def use_ledger(state):
    with cm.Ledger(state.folder / state.name) as ledger:
        wrong = differs(everything(ledger), state.holds)
        if wrong:
            return f"altered: {wrong}"
        ledger.sell([seller(0)], 1.0, 1.0)
        left = ledger.account([seller(0)]).remaining
        ledger.account([seller(0)], "model 3").charge(
            Guarantee(0.5 * left, 0.0, "a model", "tight", ())
        )
        if len(ledger.releases()) != len(state.holds["releases"]) + 1:
            return "altered: the releases"
    return None
