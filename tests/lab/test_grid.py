"""The engine of experiments: the order of rows, paired draws, failures that are told."""

from itertools import product

from convexmarket.errors import InfeasibleMarketError
from convexmarket.lab.grid import Grid
from convexmarket.lab.stages import Stages

AXES = {"gamma": (0.1, 1.0), "cap": (1, 2, 3)}


def run(one, axes=AXES, jobs=1, **options):
    return Grid(axes, **options).map(one, Stages(None), jobs)


def drawn(place, streams):
    return {"first": streams(0).random(), "second": streams(1).random()}


def too_tight(place, streams):
    if place["cap"] == 2:
        raise InfeasibleMarketError("a cap of 2 is too tight")
    return {"error": place["gamma"] * place["cap"]}


def test_rows_are_in_the_order_of_the_axes_and_of_the_draws():
    found = run(lambda place, streams: dict(place), draws=2)
    assert list(found) == ["gamma", "cap", "draw", "status", "message"]
    order = [(*place, draw) for place in product(*AXES.values()) for draw in (0, 1)]
    assert list(found[["gamma", "cap", "draw"]].itertuples(index=False, name=None)) == order


def test_every_point_of_a_draw_sees_the_same_numbers_and_nothing_else_does():
    found = run(drawn, draws=4, seed=3)
    assert (found.groupby("draw")[["first", "second"]].nunique() == 1).all(axis=None)
    numbers = found.drop_duplicates("draw")[["first", "second"]].to_numpy()
    assert len(set(numbers.ravel())) == numbers.size
    assert not found.equals(run(drawn, draws=4, seed=4))
    assert found.equals(run(drawn, draws=4, seed=3))


def test_the_draws_there_are_do_not_change_by_more_of_them():
    few, many = run(drawn, draws=2), run(drawn, draws=5)
    assert few.equals(many[many.draw < 2].reset_index(drop=True))


def test_without_draws_there_is_no_column_of_draws():
    assert "draw" not in run(drawn)
    assert run(drawn).equals(run(drawn, draws=1).drop(columns="draw"))


def test_a_failure_is_a_row_with_its_status_and_message():
    found = run(too_tight)
    failed = found.cap == 2
    assert set(found.status[failed]) == {"infeasible"}
    assert set(found.message[failed]) == {"a cap of 2 is too tight"}
    assert found.error[failed].isna().all()
    assert set(found.status[~failed]) == {"solved"}
    assert (found.error == found.gamma * found.cap)[~failed].all()


def test_jobs_do_not_matter(two_jobs):
    assert run(drawn, draws=3).equals(run(drawn, draws=3, jobs=2))
