"""Check import directions, line ceilings and public names of the packages."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import get_origin

import pytest

import convexmarket as cm
from convexmarket import terms
from tests import ROOT, parsed, sizes

PACKAGE = Path(cm.__file__).parent

#: Rows of the table in CONTRIBUTING.md. A package imports only packages in rows above it.
ROWS = sizes.rows(sizes.PAGE.read_text())
PACKAGES = [name for row in ROWS if not row.is_folder for name in row.names]
#: Packages that only the listed packages can import.
DOORS = {"cli": set()}

MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
INSIDE = [path for path in MODULES if path.parts not in (("__init__.py",), ("__main__.py",))]


def package_of(path):
    return path.parts[0].removesuffix(".py")


def imported_packages(source, package):
    """Return the line and the package of every import in a module, including nested imports.

    Parameters
    ----------
    source : str
    package : sequence of str
        Names of the packages that contain the module, starting at the top level.
    """
    result = []
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            stem = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*stem, *([node.module] if node.module else [])])
            # In ``from convexmarket import market``, the package is the name after ``import``.
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "convexmarket":
                result.append((node.lineno, parts[1] if len(parts) > 1 else ""))
    return result


@cache
def imports_of(path):
    package = ["convexmarket", *path.parts[:-1]]
    return imported_packages((PACKAGE / path).read_text(), package)


def violation(package, imported):
    """Return a description of the rule that an import violates, or an empty string."""
    if imported == package:
        return ""
    if imported not in PACKAGES:  # the top level can import all packages
        return f"imports the package's public names ({imported or 'convexmarket'})"
    if PACKAGES.index(imported) > PACKAGES.index(package):
        return f"imports {imported}, which comes after it"
    if imported in DOORS and package not in DOORS[imported]:
        return f"imports {imported}, which only {DOORS[imported]} may"
    return ""


# ------------------------------------------------------------------------ directions


def test_every_module_is_in_the_table_of_packages():
    assert {package_of(path) for path in MODULES} <= set(PACKAGES)
    assert len(INSIDE) > len(PACKAGES)


def test_a_package_imports_only_packages_before_it():
    wrong = [
        f"{path}:{line} {reason}"
        for path in INSIDE
        for line, imported in imports_of(path)
        if (reason := violation(package_of(path), imported))
    ]
    assert not wrong, "\n".join(wrong)


def test_cvxpy_is_imported_only_where_problems_are_declared():
    """Priors, payments and audits do not import CVXPY. Sellers do, to support parameters."""
    users = {
        package_of(path)
        for path in INSIDE
        if re.search(r"^\s*(import|from) cvxpy", (PACKAGE / path).read_text(), re.M)
    }
    declaring = {"terms", "allocation", "learners", "joint", "release", "studies"}
    assert users <= declaring | {"sellers"}


@pytest.mark.parametrize(
    ("source", "package", "expected"),
    [
        ("import convexmarket.market", [], ["market"]),
        ("from convexmarket import market", [], ["market"]),
        ("import convexmarket as cm", [], [""]),
        ("from ..studies import report", ["convexmarket", "allocation"], ["studies"]),
        ("from . import exact", ["convexmarket", "allocation"], ["allocation"]),
        ("from .studies import report", ["convexmarket"], ["studies"]),
        ("def later():\n    from convexmarket.cli import app", [], ["cli"]),
        ("import numpy", [], []),
    ],
)
def test_all_forms_of_imports_are_detected(source, package, expected):
    assert [package for _, package in imported_packages(source, package)] == expected


@pytest.mark.parametrize(
    ("package", "imported", "wrong"),
    [
        ("market", "sellers", False),
        ("market", "market", False),
        ("sellers", "market", True),
        ("cli", "studies", False),
        ("audit", "", True),
        ("audit", "Market", True),
    ],
)
def test_violations_of_import_directions_are_detected(package, imported, wrong):
    assert bool(violation(package, imported)) is wrong


# -------------------------------------------------------------------------- ceilings


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.names[0])
def test_a_row_has_no_more_lines_than_its_ceiling_or_its_recorded_count(row):
    assert row.lines() <= row.limit, "delete lines: see CONTRIBUTING.md"


def test_the_rows_of_packages_add_up_to_the_total():
    packages = [row for row in ROWS if not row.is_folder]
    (total,) = (row for row in ROWS if row.names == ["convexmarket/"])
    assert sum(row.ceiling for row in packages) == total.ceiling == 32_500
    assert sum(row.lines() for row in packages) == total.lines()


def test_recorded_counts_increase_only_after_a_move():
    page = (
        "| `market`, `none` | 0 | 1 | x |\n| `sellers` | 9 | 9,999 | y |\n| `tests/` | 9 | 9 | z |"
    )
    remaining = [row.recorded for row in sizes.rows(sizes.rewritten(page, moved=False))]
    moved = [row.recorded for row in sizes.rows(sizes.rewritten(page, moved=True))]
    market, sellers = (sizes.Row([name], 0, 0).lines() for name in ("market", "sellers"))
    assert remaining == [1, sellers, 9]
    assert moved == [market, sellers, 9]


# ----------------------------------------------------------------- classes of pieces

#: Base classes for checks of arguments, and all classes of terms, constraints and costs.
BASES = {"Term", "Constraint", "PrivacyCost"}
PIECES = {
    name
    for name in terms.__all__
    if issubclass(getattr(terms, name), terms.pieces.Piece | terms.PrivacyCost)
}
#: Modules that check types of arguments that users pass.
BORDER = {"market.py", "incentives/calibration.py", "studies/files/market_file.py"}


def named(node):
    """Return the names in an expression for a class, a tuple of classes or a union."""
    names = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    return names | {item.attr for item in ast.walk(node) if isinstance(item, ast.Attribute)}


def checks_classes(source):
    """Return the line and the checked classes of each type check of terms in a module."""
    result = []
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            names = named(node.args[1])
        elif isinstance(node, ast.Compare):  # type(term) is Spread, type(term) in (Spread, Noise)
            sides = [node.left, *node.comparators]
            of_types = any(ast.unparse(side).startswith("type(") for side in sides)
            names = set().union(*map(named, sides)) if of_types else set()
        elif isinstance(node, ast.MatchClass):
            names = named(node.cls)
        else:
            continue
        if names & PIECES:
            result.append((node.lineno, names & PIECES))
    return result


def test_no_module_checks_the_class_of_a_piece():
    wrong = [
        f"{path}:{line} checks for {', '.join(sorted(names))}"
        for path in MODULES
        if package_of(path) != "terms"
        for line, names in checks_classes((PACKAGE / path).read_text())
        if not (names <= BASES and path.as_posix() in BORDER)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("isinstance(term, Spread)", {"Spread"}),
        ("isinstance(term, terms.Spread | cm.Noise)", {"Spread", "Noise"}),
        ("issubclass(kind, Payments)", {"Payments"}),
        ("type(term) is Spread and term.p == 2", {"Spread"}),
        ("x = [type(part.term) not in (Noise, Losses)]", {"Noise", "Losses"}),
        ("match term:\n    case Spread(p=2):\n        pass", {"Spread"}),
        ("isinstance(x, dict)", set()),
        ("type(x) is dict", set()),
        ("Spread(2) == term", set()),
    ],
)
def test_all_forms_of_class_checks_are_detected(source, names):
    assert set().union(*(result for _, result in checks_classes(source))) == names


# ----------------------------------------------------------------------- public names


def test_the_package_has_at_most_64_names_and_loads_them_lazily():
    assert cm.__all__ == sorted(set(cm.__all__))
    assert len(cm.__all__) <= 64
    statement = "import sys, convexmarket; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", statement], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"cvxpy", "numpy", "pandas", "sklearn", "scipy", "matplotlib"} & set(loaded)


def public():
    """Return the objects with public names in the top level and in its packages."""
    result = {name: getattr(cm, name) for name in cm.__all__}
    for package, module in list(result.items()):
        if inspect.ismodule(module):
            result |= {f"{package}.{name}": getattr(module, name) for name in module.__all__}
    return result


def test_every_public_name_is_documented():
    for name, value in public().items():
        documented = inspect.getdoc(value) or ""
        if get_origin(value) is not None:  # type aliases have no docstring
            continue
        assert documented.split(), name
        first = documented.split("\n\n")[0]
        assert first.endswith("."), f"{name}: a summary must be a sentence"
        if inspect.isclass(value):
            # Inherited and generated docstrings, such as "Cap(k: float)", are not sufficient.
            assert (value.__doc__ or "").split(), name
            assert not re.fullmatch(rf"{name}\(.*\)", value.__doc__ or ""), name
            for attribute, member in vars(value).items():
                if not attribute.startswith("_") and (
                    inspect.isfunction(member) or isinstance(member, property)
                ):
                    assert inspect.getdoc(getattr(value, attribute)), f"{name}.{attribute}"


def test_every_module_has_a_docstring():
    for path in MODULES:
        source = (PACKAGE / path).read_text()
        assert not source.strip() or ast.get_docstring(parsed(source)), path


def test_exported_names_exist():
    for package in {package_of(path) for path in INSIDE}:
        module = importlib.import_module(f"convexmarket.{package}")
        for name in getattr(module, "__all__", ()):
            assert hasattr(module, name), f"{package}.{name}"


def test_every_error_is_public_and_a_subclass_of_the_base_error():
    from convexmarket import errors

    for name in errors.__all__:
        kind = getattr(errors, name)
        assert issubclass(kind, cm.ConvexMarketError | Warning)


# ------------------------------------------------------------------------------ version


def test_the_version_is_defined_in_one_file():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cm.__version__ == metadata.version("convexmarket") == project["version"]
    elsewhere = [
        str(path) for path in MODULES if f'"{project["version"]}"' in (PACKAGE / path).read_text()
    ]
    assert not elsewhere
