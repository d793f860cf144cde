"""Stored and exchanged files contain data that the package never executes.

Joblib, Dask and forks exchange objects only between processes of the same user.
"""

import ast
from pathlib import Path

import pytest

import convexmarket
from tests import parsed

PACKAGE = Path(convexmarket.__file__).parent
MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle"}
MODULES |= {"yaml", "ruamel", "imp"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
JOBLIB = {"dump", "load", "Memory"}
PANDAS = {"read_pickle", "to_pickle"}
IMPORT = "import_module"


def violations(source):
    """Yield the statements of a module that could execute data."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None)
            names = [alias.name for alias in node.names]
            for name in [module] if module else names:
                if name.split(".")[0] in MODULES:
                    yield f"imports {name}"
            if module in ("joblib", "pandas", "numpy"):
                yield from (f"imports {name}" for name in names if name in JOBLIB | PANDAS)
        elif IMPORT in (getattr(node, "attr", ""), getattr(node, "id", "")):
            yield f"uses {IMPORT}"
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in BUILTINS:
                yield f"calls {called.id}"
            if isinstance(called, ast.Attribute):
                owner = called.value.id if isinstance(called.value, ast.Name) else ""
                if called.attr in PANDAS or (owner == "joblib" and called.attr in JOBLIB):
                    yield f"calls {called.attr}"
            for keyword in node.keywords:
                refused = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
                if keyword.arg == "allow_pickle" and not refused:
                    yield "allows pickles"


def test_the_package_never_executes_data():
    result = {
        (file.relative_to(PACKAGE).as_posix(), what)
        for file in PACKAGE.rglob("*.py")
        for what in violations(file.read_text(encoding="utf-8"))
    }
    copies = {("allocation/views.py", "imports pickle")}  # copies problems in memory
    digests = {("studies/solver_study.py", "imports cloudpickle")}
    assert result == copies | digests


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "from joblib import load",
        "joblib.dump(x, f)",
        "pd.read_pickle(f)",
        "frame.to_pickle(f)",
        "np.load(f, allow_pickle=True)",
        "eval(x)",
        "importlib.import_module(name)",
        "load = import_module",
    ],
)
def test_the_check_detects_unsafe_constructs(source):
    assert list(violations(source))


def test_the_check_accepts_safe_constructs():
    assert not list(violations("from importlib.resources import files\nnp.load(f)"))
    assert not list(violations("from joblib import Parallel\nnp.load(f, allow_pickle=False)"))
