"""Files of kind "release-comparison": what cannot be compared is said at once, with the key."""

from __future__ import annotations

import pytest

import convexmarket as cm
from convexmarket.data.datasets import wdbc
from convexmarket.errors import ProblemFileError
from convexmarket.lab.kinds.release_comparison.problem import ReleaseComparisonProblem
from convexmarket.lab.problem.loading import load_problem, parse_problem
from tests import PROBLEMS
from tests.lab.problem.builders import for_each

BASE = """
kind = "release-comparison"
title = "Circles"
[data]
source = "circles"
[model]
regularization = 0.1
[study]
sizes = [100, 200]
epsilons = [1.0]
[[releases]]
kind = "function"
label = "function"
"""
WDBC = 'data={source="wdbc"}'
SHIPPED = sorted(PROBLEMS.glob("release-*.toml"))
#: A release of every kind, with what it needs.
KINDS = {
    "interactive": "max_updates=3",
    "semi-interactive": "n_points=7",
    "non-interactive": "rounds=2",
    "function": "",
    "objective-perturbation": "regularization=0.1",
}


def parsed(*overrides: str) -> ReleaseComparisonProblem:
    problem = parse_problem(BASE, overrides, path="my.toml")
    assert isinstance(problem, ReleaseComparisonProblem)
    return problem


def refused(*overrides: str) -> str:
    with pytest.raises(ProblemFileError) as caught:
        parsed(*overrides)
    return str(caught.value).removeprefix("my.toml: ")


def releases(*entries: str) -> str:
    return f"releases=[{', '.join(f'{{{entry}}}' for entry in entries)}]"


def release(kind: str, *entries: str, label: str = "one") -> str:
    told = [f'kind="{kind}"', f'label="{label}"', KINDS[kind], *entries]
    return ", ".join(entry for entry in told if entry)


def all_kinds() -> str:
    return releases(*(release(kind, label=kind) for kind in KINDS))


def test_what_a_file_leaves_out():
    problem = parsed(all_kinds())
    assert (problem.data.noise, problem.data.factor, problem.data.n_test) == (0.15, 0.4, 500)
    study = problem.study
    assert (study.delta, study.failure_probability, study.fits, study.draws) == (1e-6, 0.05, 3, 5)
    assert (study.useful_error, study.useful_loss) == (0.3, 0.02)
    interactive, semi_interactive, public, _, linear = problem.releases
    assert (interactive.accounting, interactive.threshold) == ("tight", None)
    assert (semi_interactive.accounting, semi_interactive.noise) == ("tight", "process")
    assert (public.accounting, public.net_radius, public.max_net) == ("tight", None, 1_000_000)
    assert linear.accounting == "sharp"


def test_the_model_is_the_library_s():
    keys = ['model.kernel="poly"', "model.degree=2", "model.coef0=0.5", "model.gamma=0.3"]
    model = parsed(*keys, 'model.loss="hinge"', "model.tol=0.1").model.learner()
    expected = cm.KernelERM(
        loss="hinge",
        kernel="poly",
        regularization=0.1,
        gamma=0.3,
        degree=2,
        coef0=0.5,
        data_norm=1.0,
        tol=0.1,
    )
    assert model.get_params() == expected.get_params()


def test_a_dump_is_a_problem_again():
    points = release("semi-interactive", 'noise="laplace"', label="points")
    for keys in ([all_kinds()], [releases(points)], [WDBC, "study.sizes=[9, 20]"]):
        dump = parsed(*keys).model_dump(mode="json")
        again = ReleaseComparisonProblem.model_validate(dump)
        assert again.model_dump(mode="json") == dump


def test_as_many_rows_of_a_data_set_as_there_are():
    assert wdbc().y_train.size == 341
    assert parsed(WDBC, "study.sizes=[341]").study.sizes == (341,)
    assert refused(WDBC, "study.sizes=[50, 342]") == (
        "study.sizes: 342 rows are asked for and there are 341 training rows; give sizes of at "
        "most 341"
    )
    fewer = 'data={source="wdbc", train_fraction=0.3}'
    assert "there are 171 training rows" in refused(fewer, "study.sizes=[172]")


def test_as_many_public_points_as_there_are():
    few = 'kind="semi-interactive", label="at points"'
    sizes = "study.sizes=[20]"
    assert parsed(WDBC, sizes, releases(few)).releases[0].n_points is None
    assert parsed(WDBC, sizes, releases(few + ", n_points=114")).releases[0].n_points == 114
    message = refused(WDBC, sizes, releases(few + ", n_points=115"))
    assert message.startswith("releases: n_points of 'at points' is 115, and the public points are")
    assert "the 114 validation rows; give 114 or fewer" in message
    assert "n_points of 'at points' is missing" in refused(releases(few))


@for_each(
    [
        (["study.sizes=[200, 100]"], "study.sizes: the values do not increase"),
        (["study.sizes=[100, 100]"], "study.sizes: the values do not increase"),
        (["study.sizes=[]"], "study.sizes must have more entries, got []"),
        (["study.sizes=[0]"], "study.sizes[0] must be greater than or equal to 1, got 0"),
        (["study.epsilons=[2.0, 1.0]"], "study.epsilons: the values do not increase"),
        (["study.epsilons=[0.0]"], "study.epsilons[0] must be greater than 0, got 0.0"),
        (["study.delta=0.0"], "study.delta must be greater than 0, got 0.0"),
        (
            ["study.failure_probability=1.0"],
            "study.failure_probability must be less than 1, got 1.0",
        ),
        (["study.fits=0"], "study.fits must be greater than or equal to 1, got 0"),
        (["study.draws=0"], "study.draws must be greater than or equal to 1, got 0"),
        (["study.useful_error=0.0"], "study.useful_error must be greater than 0, got 0.0"),
        (["study.useful_loss=1.0"], "study.useful_loss must be less than 1, got 1.0"),
        (["study.size=[1]"], "study.size is not a known key; did you mean 'sizes'?"),
        (['data={source="moons"}'], "data.source is 'moons'; known are 'circles', 'wdbc'"),
        (["data.factor=1.0"], "data.factor must be less than 1, got 1.0"),
        (["data.noise=-0.1"], "data.noise must be greater than or equal to 0, got -0.1"),
        (["data.n_test=0"], "data.n_test must be greater than or equal to 1, got 0"),
        (['model.loss="huber"'], "model.loss is 'huber'; known are 'logistic', 'hinge'"),
        (['model.kernel="sigmoid"'], "model.kernel is 'sigmoid'; known are "),
        (["model.regularization=0.0"], "model.regularization must be greater than 0, got 0.0"),
        (
            ["model.data_norm=0.5"],
            "model.data_norm: rows have norms up to 1, and the public domain must hold them all;",
        ),
        (
            ['data={source="wdbc", data_norm=2.0}'],
            "model.data_norm: rows have norms up to 2, and the public domain must hold them all; "
            "give 2 or more",
        ),
        ([releases()], "releases must have more entries, got []"),
        ([releases('kind="functional", label="a"')], "releases[0].kind is 'functional'; did you"),
        ([releases('kind="function"')], "releases[0].label is missing"),
        ([releases('kind="function", label=""')], "releases[0].label must have"),
        (
            [releases(release("function"), release("interactive"))],
            "releases: label 'one' is given to two of them; give each its own",
        ),
        ([releases('kind="interactive", label="a"')], "releases[0].max_updates is missing"),
        (
            [releases(release("function"), release("interactive", "thresold=1.0", label="b"))],
            "releases[1].thresold is not a known key; did you mean 'threshold'?",
        ),
        (
            [releases(release("interactive", "threshold=-1.0"))],
            "releases[0].threshold must be greater than or equal to 0, got -1.0",
        ),
        (
            [releases(release("interactive", 'accounting="joint"'))],
            "releases[0].accounting is 'joint'; known are 'tight', 'paper'",
        ),
        (
            [releases(release("semi-interactive", 'accounting="paper"'))],
            'releases[0]: noise = "process" is one answer, which needs no composition; leave out '
            'accounting, or give noise = "laplace"',
        ),
        (
            [releases(release("non-interactive", "net_radius=0.0"))],
            "releases[0].net_radius must be greater than 0, got 0.0",
        ),
        (
            [releases('kind="objective-perturbation", label="a"')],
            "releases[0].regularization is missing",
        ),
    ],
)
def test_mistakes_name_the_key(overrides, said):
    message = refused(*overrides)
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_files_of_the_repository_compare_what_theory_compares(path):
    problem = load_problem(path)
    assert isinstance(problem, ReleaseComparisonProblem)
    kinds = {(each.kind, getattr(each, "accounting", None)) for each in problem.releases}
    for kind in ("interactive", "semi-interactive"):
        assert {(kind, "tight"), (kind, "paper")} <= kinds
    assert ("non-interactive", "tight") in kinds
    assert {kind for kind, _ in kinds} == set(KINDS)
    assert problem.notes


def test_there_are_two_of_them():
    assert [path.stem for path in SHIPPED] == ["release-circles", "release-wdbc"]
