"""Public objects have text and HTML representations and can be converted to tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.privacy import RowAccount, Simulation, account

IDS = ["Ann", "Bob <b>", "Eve"]
PRIOR = cm.Uniform(0.0, 1.0)


def sellers():
    return cm.Sellers([0.1, 0.2, 0.6], PRIOR, ids=IDS, groups=["a", "b", "a"])


def market():
    return cm.Market(sellers(), cm.Spread() + cm.Noise() + 0.5 * cm.Payments())


def erm():
    rows = np.linspace(-0.5, 0.5, 6)[:, None]
    return cm.KernelERM(data_norm=1.0).fit(rows, np.sign(rows[:, 0]), epsilon=1.0)


def closed_account() -> RowAccount:
    with account(budget=1.0) as opened:
        pass
    return opened


OBJECTS = {
    "Sellers": sellers,
    "Market": market,
    "Allocation": lambda: cm.allocate(market()),
    "IncentiveAudit": lambda: cm.audit_incentives(market()),
    "OnlineOutcome": lambda: cm.run_online(
        cm.OnlinePolicy(PRIOR, 3, mu=1.0, sigma=1.0, gamma=0.5), [0.1, 0.2, 0.6]
    ),
    "PrivacyAccountant": lambda: cm.PrivacyAccountant([1.0, 2.0, 3.0], ids=IDS),
    "RowAccount": closed_account,
    "Guarantee": lambda: cm.Guarantee([1.0, 2.0], 0.0, "a <sum>", "exact", ()),
    "TestSetRelease": lambda: cm.TestSetRelease(
        erm(), [[0.1]], epsilon=1.0, delta=0.0, random_state=Simulation(0)
    ),
    "InteractiveRelease": lambda: cm.InteractiveRelease(
        erm(), epsilon=1.0, delta=1e-6, max_queries=2, max_updates=1, random_state=Simulation(0)
    ),
}
TABLES = ["Sellers", "Market", "Allocation", "IncentiveAudit", "PrivacyAccountant"]


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_have_a_text_and_an_html_representation(name):
    instance = OBJECTS[name]()
    assert name in repr(instance)
    assert " at 0x" not in repr(instance)
    html = instance._repr_html_()
    assert html.startswith("<p>")
    assert "<b>" not in html
    assert "<sum>" not in html
    assert ("<table" in html) is hasattr(instance, "to_frame")


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_indexed_by_seller_names(name):
    frame = OBJECTS[name]().to_frame()
    assert frame.index.tolist() == IDS


def test_tables_contain_the_attributes_of_the_objects():
    result = cm.allocate(market())
    assert np.array_equal(result.to_frame()["epsilon"], result.epsilon)
    assert sellers().to_frame().loc["Eve"].to_dict() == {
        "sensitivity": 0.6,
        "virtual_cost": 1.2,
        "group": "a",
    }
    spent = cm.PrivacyAccountant([1.0, 2.0], ids=["Ann", "Bob"])
    spent.charge(cm.Guarantee([0.5, 0.0], 0.0, "m", "exact", ()))
    assert spent.to_frame().loc["Ann"].to_dict() == {"budget": 1.0, "spent": 0.5, "remaining": 0.5}
    assert isinstance(closed_account().to_frame(), pd.DataFrame)


@pytest.mark.parametrize("name", ["IncentiveAudit", "OnlineOutcome"])
def test_objects_with_a_plot_can_be_drawn(name):
    axes = OBJECTS[name]().plot()
    assert axes.get_xlabel() == "sensitivity"
    assert len(axes.lines[0].get_xdata()) == 3
    assert OBJECTS[name]().plot(axes) is axes
