"""Generate the reference pages from the code, and resolve links into the repository."""

import importlib
import inspect
import json
import re
import shutil
from pathlib import Path
from typing import Any

import typer
from citations import spelled_out
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger
from typer.cli import get_docs_for_click

from convexmarket.cli import app as command_line
from convexmarket.studies.files import json_schema

DOCS = Path(__file__).parent.parent
ROOT = DOCS.parent
GENERATED = DOCS / "reference" / "generated"

#: Public modules and their contents.
MODULES = {
    "convexmarket": "The names that most programs use, documented in their modules",
    "convexmarket.terms": "Objective terms and constraints",
    "convexmarket.priors": "Distributions of sensitivities, and virtual costs",
    "convexmarket.allocation": "Weights, privacy losses and eta of a market",
    "convexmarket.incentives": "Payments, their audits, and the calibration of gamma",
    "convexmarket.privacy": "Noise, guarantees and accounts",
    "convexmarket.learners": "Private scikit-learn estimators",
    "convexmarket.joint": "Joint optimisation of model and purchases, without a privacy guarantee",
    "convexmarket.online": "Sellers who arrive one by one",
    "convexmarket.release": "Private predictions instead of a private model",
    "convexmarket.attacks": "Attacks on privacy guarantees",
    "convexmarket.ledger": "Records of the privacy losses that were sold and used",
    "convexmarket.data": "Tables, public preprocessing, and the included data sets",
    "convexmarket.partitions": "Sellers and rows in Dask partitions (requires the optional Dask)",
    "convexmarket.errors": "Exceptions and warnings",
}


def public(module: str) -> dict[str, Any]:
    """Return the public objects of a module by name, without submodules."""
    package = importlib.import_module(module)
    names = sorted(name for name in package.__all__ if not name.startswith("_"))
    members = {name: getattr(package, name) for name in names}
    return {name: value for name, value in members.items() if not hasattr(value, "__path__")}


def documented() -> dict[str, dict[str, Any]]:
    """Map each module to its public objects, and list each object only once."""
    pages: dict[str, dict[str, Any]] = {}
    seen = set[int]()
    for module in [*list(MODULES)[1:], *list(MODULES)[:1]]:
        members = public(module).items()
        pages[module] = {name: value for name, value in members if id(value) not in seen}
        seen.update(id(value) for value in pages[module].values())
    return pages


def api_pages() -> dict[str, str]:
    """Write a page for each module, with a table of its public names, and an index page."""
    pages = {}
    for module, members in documented().items():
        names = "\n".join(f"   {name}" for name in members)
        pages[f"{module}.rst"] = (
            f"{module}\n{'=' * len(module)}\n\n{MODULES[module]}.\n\n"
            f".. currentmodule:: {module}\n\n"
            f".. autosummary::\n   :toctree: api\n   :nosignatures:\n\n{names}\n"
        )
    links = "\n".join(f"- [{name}]({name}.rst): {purpose}." for name, purpose in MODULES.items())
    hidden = "\n".join(MODULES)
    pages["api.md"] = f"# Python\n\n{links}\n\n```{{toctree}}\n:hidden:\n\n{hidden}\n```\n"
    return pages


def returned_by() -> dict[str, list[str]]:
    """Map each class to the public functions and methods that return it."""
    sources: dict[str, list[str]] = {}
    for module, members in documented().items():
        for name, value in members.items():
            functions = {name: value}
            if inspect.isclass(value):
                methods = inspect.getmembers(value, inspect.isfunction)
                functions |= {f"{name}.{method}": function for method, function in methods}
            for path, function in functions.items():
                if re.search(r"(^|\.)_", path):
                    continue
                annotation = str(getattr(function, "__annotations__", {}).get("return", ""))
                role = "meth" if "." in path else "func"
                for kind in set(re.findall(r"\w+", annotation)) - {name}:
                    sources.setdefault(kind, []).append(f":{role}:`~{module}.{path}`")
    return sources


def name_sources(
    app: Sphinx, what: str, name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Add the functions that return a class to its docstring, if it has no example."""
    functions = app.returned_by.get(name.rpartition(".")[2], [])
    if what == "class" and functions and ".. rubric:: Examples" not in lines:
        lines += ["", f"Returned by {', '.join(functions)}.", ""]


def name_papers(
    _app: Sphinx, _what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Replace the letters of papers in a docstring by authors and year."""
    lines[:] = spelled_out("\n".join(lines)).split("\n")


def lengthen_help(command: Any) -> None:
    """Describe each command by the first paragraph of its help in the lists of commands."""
    for subcommand in getattr(command, "commands", {}).values():
        subcommand.short_help = (subcommand.help or "").split("\n\n")[0].replace("\n", " ")
        lengthen_help(subcommand)


def commands_page() -> str:
    """Write the help of every command."""
    command = typer.main.get_command(command_line)
    lengthen_help(command)
    context = typer.Context(command, info_name="convexmarket")
    text = get_docs_for_click(obj=command, ctx=context, name="convexmarket")
    text = text.replace("# `convexmarket`", "# Command line", 1)
    text = re.sub(r"\[/?(bold|dim|cyan)\]", "", text)
    return re.sub(r"^ *((?:convexmarket|mkdir) .+)$", r"```sh\n\1\n```", text, flags=re.M)


def value_of(schema: dict[str, Any]) -> str:
    """Describe the values that a schema permits, in Markdown."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{table_name(name)}](#{table_name(name).lower()})"
    for alternatives in ("anyOf", "oneOf"):
        if alternatives in schema:
            return " or ".join(dict.fromkeys(value_of(option) for option in schema[alternatives]))
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if schema.get("type") == "array":
        return f"list of {value_of(schema['items'])}" if "items" in schema else "list"
    types = schema.get("type", "any value")
    names = {"object": "table", "null": "nothing", "string": "text"}
    types = [types] if isinstance(types, str) else types
    return " or ".join(names.get(kind, kind) for kind in types)


def table_name(definition: str) -> str:
    """Return the title of a schema's table, with its module if the name is not unique."""
    *path, name = definition.split("__")
    return f"{path[-1].capitalize()}{name}" if path else name


#: Largest number of characters of a default in a table. Longer defaults are nested tables.
LONGEST_DEFAULT = 40


def table_of(schema: dict[str, Any]) -> str:
    """Write a Markdown table of the keys of a problem file's table."""
    lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key, field in schema["properties"].items():
        required = key in schema.get("required", [])
        default = "required" if required else f"`{json.dumps(field.get('default'))}`"
        if len(default) > LONGEST_DEFAULT:
            default = "see the linked table"
        meaning = field.get("description", "").replace("\n", " ")
        cells = (f"`{key}`", value_of(field), default, meaning)
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines)


def problems_page() -> str:
    """Write a section for each kind of problem file, and for each table."""
    schema = json_schema()
    files = [option["$ref"].rsplit("/", 1)[-1] for option in schema["anyOf"]]
    parts = [
        "# Problem files",
        "A problem file is a TOML file. Its `kind` is one of the kinds below. "
        "`convexmarket schema` prints the keys as a JSON Schema, which editors can use.",
    ]
    for name in [*files, *sorted(set(schema["$defs"]) - set(files), key=table_name)]:
        definition = schema["$defs"][name]
        title = table_name(name)
        if name in files:
            title = f"kind = {value_of(definition['properties']['kind'])} ({name})"
        text = definition.get("description", "").split("\n\n")[0].replace("\n", " ")
        keys = table_of(definition) if "properties" in definition else value_of(definition)
        parts.append(f"## {title}\n\n{text}\n\n{keys}")
    return "\n\n".join(parts) + "\n"


#: Question that each group of reports answers. The keys are beginnings of the reports' names.
QUESTIONS = {
    "quickstart synthetic wdbc medical-market limits": "What does privacy cost a buyer?",
    "variants": "How do norms, costs, limits and priors change the market?",
    "joint": "Does a buyer gain by choosing purchases from the data?",
    "online": "How much does a buyer lose if sellers arrive one by one?",
    "ridge": "Are the published tables of private ridge regression reproduced?",
    "release": "How accurate are released predictions?",
    "solver-study": "Which solver and which formulation are fast and accurate?",
}


def finding(report: Path) -> str:
    """Extract the finding of a report, which is the first sentence of the report."""
    text = report.read_text(encoding="utf-8")
    first = text.split("\n## ")[1] if "\n## Summary" in text else text
    match = re.search(r"^\*\*(.+)\*\*$", first, re.M) or re.search(r"^(At .+?\.)[ \n]", first, re.M)
    return match[1] if match else ""


def gallery_page() -> str:
    """List the reports and their findings by question."""
    parts = ["# Reports", "Each report contains figures, tables and the command that produces it."]
    for beginnings, question in QUESTIONS.items():
        parts.append(f"## {question}")
        for folder in sorted((ROOT / "reports").iterdir()):
            report = folder / "report.md"
            if report.exists() and folder.name.startswith(tuple(beginnings.split())):
                title = re.search(r"^# (.+)$", report.read_text(encoding="utf-8"), re.M)[1]
                link = f"[{title}](../../../reports/{folder.name}/report.md)"
                parts.append(f"- {link}. {finding(report)}")
    return "\n\n".join(parts) + "\n"


def write_pages(_app: Sphinx) -> None:
    """Write the generated pages that have changed. Sphinx then reads only these pages."""
    GENERATED.mkdir(exist_ok=True)
    pages = {
        **api_pages(),
        "commands.md": commands_page(),
        "problems.md": problems_page(),
        "gallery.md": gallery_page(),
    }
    for name, text in pages.items():
        path = GENERATED / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for stub in (GENERATED / "api").glob("*.rst"):
        module, _, name = stub.stem.rpartition(".")
        if name not in public(module):
            stub.unlink()


def present(path: str) -> str:
    """Return a path in the repository, and warn if the path does not exist."""
    if not (ROOT / path).exists():
        getLogger(__name__).warning("%s, the target of a link, does not exist", path)
    return path


def link_into_repository(app: Sphinx, name: str, source: list[str]) -> None:
    """Resolve links to reports and to files of the repository, and cite papers by authors."""
    up = "../" * name.count("/")
    markdown = str(app.env.doc2path(name)).endswith(".md")
    source[0] = spelled_out(source[0], links=markdown)
    text = re.sub(
        r"\[((?:\\.|[^\]\\])*)\]\((?:\.\./)+reports/([\w-]+)/report\.md\)",
        lambda link: f'<a href="{up}{present(f"reports/{link[2]}/index.html")}">{link[1]}</a>',
        source[0],
    )
    text = text.replace("](../reports/README.md)", f"]({up}reference/generated/gallery.md)")
    source[0] = re.sub(
        r"\[`?([^\]`]*)`?\]\((?:\.\./)+((?:convexmarket|tests|problems)/[^)]*|[A-Z]+\.md)\)",
        lambda link: f"`{link[1]}`" if present(link[2].split("#")[0]) else "",
        text,
    )


def copy_reports(app: Sphinx, failed: Exception | None) -> None:
    """Copy the reports into the HTML site."""
    if failed is None and app.builder.name == "html":
        target = Path(app.outdir) / "reports"
        ignored = shutil.ignore_patterns("*.json", "*.parquet", "tables")
        shutil.copytree(ROOT / "reports", target, ignore=ignored, dirs_exist_ok=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the functions of this module to the Sphinx build."""
    app.returned_by = returned_by()
    app.connect("autodoc-process-docstring", name_sources, priority=900)
    app.connect("autodoc-process-docstring", name_papers)
    app.connect("config-inited", lambda app, _config: write_pages(app))
    app.connect("source-read", link_into_repository)
    app.connect("build-finished", copy_reports)
    return {"parallel_read_safe": True}
