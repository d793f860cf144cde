"""Test comparisons of solvers, with faulty solvers, journals and invalid arguments."""

from types import SimpleNamespace

import pandas as pd
import pytest
from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import CLARABEL

import convexmarket as cm
from convexmarket.errors import NotSupportedError, ParameterError
from convexmarket.studies.solver_page import statements
from convexmarket.studies.solver_study import KEYS, summarise
from convexmarket.studies.subproblems.problem_classes import CLASSES
from convexmarket.studies.verdicts import shifted_geometric_mean
from tests.studies.small_runs import frame, run
from tests.studies.stub_solvers import Hanging, Infeasible, Raising, WrongPoint

PRIOR = cm.Uniform(1, 5)
BASE = cm.Spread() + 2 * cm.Noise() + 0.02 * cm.Payments()
MARKET = cm.Market(cm.Sellers(PRIOR.sample(20, 0), PRIOR), BASE)
FEW = {"formulations": ["primal", "projection"], "classes": ["allocation"], "progress": False}


def drawn(n, draw):
    return cm.Market(cm.Sellers(PRIOR.sample(n, draw), PRIOR), BASE)


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    return tmp_path_factory.mktemp("study") / "runs.jsonl"


ALL = {
    "solvers": ["exact", "clarabel", "OSQP", "nag", WrongPoint(), Infeasible(), Raising()],
    "settings": {
        "default": None,
        "hasty": {"tolerance": 1e-9, "options": {"clarabel": {"max_iter": 2}}},
    },
}


@pytest.fixture(scope="module")
def runs(journal):
    return cm.compare_solvers({"market": MARKET}, **ALL, **FEW, journal=journal)


def outcomes(runs, **values):
    frame = runs.to_frame()
    for name, value in ({"setting": "default"} | values).items():
        frame = frame[frame[name] == value]
    return set(frame.outcome)


def test_correct_solvers_solve_and_other_solvers_are_missing_or_unsupported(runs):
    assert runs.facts["absent"] == ["NAG"]
    assert outcomes(runs, solver="exact") == {"solved"}
    assert outcomes(runs, solver="CLARABEL") == {"solved"}
    assert outcomes(runs, solver="OSQP", formulation="primal") == {"unsupported"}
    assert outcomes(runs, solver="OSQP", formulation="projection") == {"solved"}
    frame = runs.to_frame()
    solved = frame[frame.outcome == "solved"]
    assert (solved.accuracy <= solved.tolerance).all()
    assert (solved.objective != solved.again_objective).all()
    assert set(frame.certainty) == {"exact"}
    assert list(frame)[:3] == ["problem", "problem_class", "instance"]


def test_false_results_are_wrong_and_errors_are_failures(runs):
    assert outcomes(runs, solver="WRONGPOINT") == {"wrong"}
    assert outcomes(runs, solver="INFEASIBLE") == {"wrong"}
    assert outcomes(runs, solver="RAISING") == {"failed"}
    assert any("WRONGPOINT" in text and "refute" in text for text in runs.statements())


def test_recorded_runs_are_not_repeated(runs, journal):
    before = journal.read_bytes()
    again = cm.compare_solvers({"market": MARKET}, **ALL, **FEW, journal=journal)
    assert journal.read_bytes() == before
    pd.testing.assert_frame_equal(again.to_frame(), runs.to_frame())
    other = cm.Market(MARKET.sellers, cm.Spread() + 2.5 * cm.Noise() + 0.02 * cm.Payments())
    cm.compare_solvers({"market": other}, solvers=["CLARABEL"], **FEW, journal=journal)
    assert journal.read_bytes().startswith(before + b"{")


def test_a_function_is_called_at_every_size_with_reproducible_draws():
    options = FEW | {"solvers": ["exact"], "formulations": ["projection"], "jobs": 2}
    problems = {"first": drawn, "again": lambda n, draw: drawn(n, draw)}
    frame = cm.compare_solvers(problems, sizes=[10, 20], draws=2, **options).to_frame()
    first, again = (frame[frame.problem == name] for name in problems)
    assert list(zip(first["size"], first.seed, strict=True)) == [(10, 0), (10, 1), (20, 0), (20, 1)]
    assert first.objective.nunique() == 4
    assert first.objective.tolist() == again.objective.tolist()


def test_an_unsupported_problem_is_not_tried_at_larger_sizes():
    options = FEW | {"formulations": ["primal"]}
    runs = cm.compare_solvers(drawn, solvers=["OSQP"], sizes=[10, 20], **options)
    frame = runs.to_frame()
    assert frame.outcome.tolist() == ["unsupported", "unsupported"]
    assert frame.peak_memory_mb.isna().tolist() == [False, True]
    assert "means" not in runs.tables
    assert runs.statements() == ["OSQP cannot take allocation (primal)."]


def test_a_larger_instance_is_skipped_if_a_smaller_instance_reached_a_limit():
    options = FEW | {"formulations": ["projection"]}
    runs = cm.compare_solvers(drawn, solvers=[Hanging()], sizes=[10, 20], time_limit=2.0, **options)
    frame = runs.to_frame().set_index("size")
    assert frame.outcome.tolist() == ["time limit", "time limit"]
    assert frame.message[20] == "skipped because the run of size 10 had the same outcome"


def test_every_class_has_an_instance_by_its_name():
    first = [formulations[0] for formulations in CLASSES.values()]
    frame = cm.compare_solvers(
        list(CLASSES), solvers=["exact", "CLARABEL"], sizes=[30], formulations=sorted(set(first)),
        jobs=2, progress=False,
    ).to_frame()  # fmt: skip
    assert set(frame.outcome) <= {"solved", "unsupported"}
    solved = frame[(frame.outcome == "solved") & (frame.solver == "CLARABEL")]
    assert set(zip(CLASSES, first, strict=True)) <= set(
        zip(solved.problem_class, solved.formulation, strict=True)
    )


def mine(**options):
    return {"solvers": ["SCS", "nag"], "settings": {"mine": {"tolerance": 0.1, "options": options}}}


@pytest.mark.parametrize(
    ("problems", "options", "words"),
    [
        ([MARKET], {"sizes": [10]}, "'market 1' is a Market of a fixed size"),
        ([drawn], {}, "'drawn' needs sizes"),
        (["rigde"], {"sizes": [10]}, "names the class 'rigde'; known are allocation"),
        ([lambda n: 3], {"sizes": [10]}, "is a int for n = 10"),
        ([3], {"sizes": [10]}, "give a Market, a function n -> Market or a class name"),
        ([MARKET], {"classes": ["ridge"]}, "no problem has a subproblem of the classes ridge"),
        ([MARKET], {"classes": ["rigde"]}, "classes names 'rigde'; known are allocation"),
        ([MARKET], {"formulations": ["primul"]}, "'primul'; known are diagonal, dual"),
        ([MARKET], {"formulations": [["primal"]]}, r"formulations names \['primal'\]"),
        ([MARKET], {"solvers": None}, "solvers must be a list of names, got None"),
        ([MARKET], {"solvers": [3]}, "solvers names 3; give names such as 'CLARABEL'"),
        ([MARKET], {"solvers": [CLARABEL]}, "names <class .*; give names .*, or objects with"),
        ([MARKET], {"solvers": ["CLARABEL", "NOPE"]}, "solvers names 'NOPE'; known are C.*, exact"),
        ([MARKET], {"solvers": ["NAG"]}, r"no solver in solvers=\['NAG'\] is installed"),
        (["ridge"], {"sizes": 20.5}, "sizes must be a list of numbers, such as .* got 20.5"),
        ([MARKET], {"solvers": [CLARABEL()]}, "rename your solver 'CLARABEL'; this name is reser"),
        ([MARKET], {"settings": {"sloppy": None}}, "settings names 'sloppy'"),
        ([MARKET], {"settings": ["default"]}, "settings must be options by name"),
        ([MARKET], {"settings": {"reference": {"tolerance": 1.0}}}, "is a reserved name"),
        ([MARKET], {"settings": {"mine": {"tol": 1.0}}}, "settings names 'mine', with"),
        ([MARKET], {"time_limit": 0}, "time_limit must"),
        ([cm.Market(MARKET.sellers, cm.Spread() + cm.Payments())], {}, "no Noise term"),
        ([MARKET], mine(SCS={"foo": 1}), "settings.mine.options.SCS: the solver rejects {'foo': "),
        ([MARKET], mine(NAG={}, SC={}), "settings.mine.options names 'SC'; the .* solvers are SCS"),
    ],
)
def test_errors_name_an_invalid_argument_and_a_remedy(problems, options, words):
    with pytest.raises((ParameterError, NotSupportedError), match=words):
        cm.compare_solvers(problems, progress=False, **options)


def test_a_report_starts_with_the_matrices(runs, tmp_path):
    report = runs.report("Which solver?")
    assert [figure.name for figure in report.figures] == ["allocation-default", "allocation-hasty"]
    page = report.write(tmp_path / "report").with_name("report.md").read_text()
    assert "OSQP cannot take allocation" in page


def raced(kind, factor):
    """Return runs of two solvers whose times have a ratio."""
    times = {"ECOS": 1.0, "SCS": factor}
    cases = [(solver, k, time * (1 + 0.1 * k)) for solver, time in times.items() for k in range(4)]
    return [run(solver, seed=k, total_s=time, problem_class=kind) for solver, k, time in cases]


def sentences(*rows):
    return statements(SimpleNamespace(tables={"runs": frame(*rows)}, facts={"absent": []}))


def test_the_fastest_solver_is_compared_with_the_next_solver_by_an_interval():
    rows = raced("ridge", 2.0) + [run("OSQP", seed=seed, outcome="failed") for seed in range(4)]
    text = sentences(*rows)[0]
    assert text == (
        "ridge, setting default, size 100: ECOS, primal is the fastest of the CVXPY solvers, "
        "1.1 s; SCS, primal takes 2.0 times as long (95 % interval 2 to 2)."
    )
    slow = [run("SCS", seed=seed, total_s=2.0) for seed in (0, 1)]
    assert sentences(run("ECOS"), run("ECOS", seed=1, total_s=2.0), *slow) == [
        "ridge, setting default, size 100: ECOS, primal has the smallest mean time of the CVXPY "
        "solvers, 1.4 s; SCS, primal takes 1.4 times as long (95 % interval 0.017 to 1.2e+02; not "
        "significant)."
    ]
    alone = sentences(run("OSQP", outcome="failed"))
    assert alone == ["ridge, setting default, size 100: no CVXPY solver solves every instance."]


def test_a_page_of_several_classes_has_a_matrix_for_each_class():
    rows = raced("ridge", 2.0) + raced("budget", 1.0)
    rows.append(run("OSQP", problem_class="ridge", outcome="wrong"))
    table = frame(*rows)
    machine = {"cpu": "a processor", "system": "a system"}
    facts = {"absent": [], "machine": machine, "caveats": ["None."]}
    tables = {"runs": table, **summarise(table)}
    report = cm.Runs("solvers", {name: KEYS[name] for name in tables}, tables, facts).report("x")
    race = "ridge, setting default, size 100: ECOS, primal is the fastest"
    assert report.finding.startswith(race)
    assert [figure.name for figure in report.figures] == ["ridge-default", "budget-default"]
    counts = "17 runs on a processor, a system: 16 solved, 1 wrong. The time limit was 60 s."
    assert counts in report.to_markdown()
    shown = [text.get_text() for text in report.figures[0].picture.axes[0].texts]
    mean = shifted_geometric_mean(pd.DataFrame({"x": [1.0, 1.1, 1.2, 1.3]}))["x"]
    assert f"{mean:.2g}" in shown
