"""The pages of the reference that follow from the code, and links into the repository."""

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

#: The modules that users import from, and what each is for.
MODULES = {
    "convexmarket": "The names that most users type; each is described with the module it is of",
    "convexmarket.terms": "Objective terms and constraints",
    "convexmarket.priors": "Distributions of sensitivities, and virtual costs",
    "convexmarket.allocation": "How much privacy is bought from whom",
    "convexmarket.incentives": "Payments, audits of them, and the calibration of gamma",
    "convexmarket.privacy": "Noise, guarantees and accounts",
    "convexmarket.learners": "Private scikit-learn estimators",
    "convexmarket.joint": "Model and purchases chosen together, without a guarantee",
    "convexmarket.online": "Sellers who come one by one",
    "convexmarket.release": "Predictions under a guarantee, instead of a model",
    "convexmarket.attacks": "Attacks on the guarantees",
    "convexmarket.ledger": "What was sold, and what of it is spent",
    "convexmarket.data": "Tables, public preprocessing, the data that ship",
    "convexmarket.partitions": "Sellers and rows in the partitions of Dask; optional",
    "convexmarket.errors": "What can go wrong",
}


def public(module: str) -> list[str]:
    """Return the names that a module exports, without modules."""
    room = importlib.import_module(module)
    names = [name for name in room.__all__ if not name.startswith("_")]
    return sorted(name for name in names if not hasattr(getattr(room, name), "__path__"))


def api_pages() -> dict[str, str]:
    """Return a page for each module, its names in a table with a page each."""
    pages, told = {}, set[int]()
    for module, purpose in [*list(MODULES.items())[1:], next(iter(MODULES.items()))]:
        room = importlib.import_module(module)
        names = [name for name in public(module) if id(getattr(room, name)) not in told]
        told.update(id(getattr(room, name)) for name in names)
        listed = "\n".join(f"   {name}" for name in names)
        title = f"{module}\n{'=' * len(module)}\n\n{purpose}.\n\n.. currentmodule:: {module}\n\n"
        pages[f"{module}.rst"] = (
            f"{title}.. autosummary::\n   :toctree: api\n   :nosignatures:\n\n{listed}\n"
        )
    modules = (f"- [{name}]({name}.rst): {purpose}." for name, purpose in MODULES.items())
    listed, hidden = "\n".join(modules), "\n".join(MODULES)
    pages["api.md"] = f"# Python\n\n{listed}\n\n```{{toctree}}\n:hidden:\n\n{hidden}\n```\n"
    return pages


def returned_by() -> dict[str, list[str]]:
    """Return the public functions and methods that return each public class."""
    found: dict[str, list[str]] = {}
    told = set[int]()
    for module in [*list(MODULES)[1:], *list(MODULES)[:1]]:  # as the pages are laid out
        for name in public(module):
            one = getattr(importlib.import_module(module), name)
            if id(one) in told:
                continue
            told.add(id(one))
            members = inspect.getmembers(one, inspect.isfunction) if inspect.isclass(one) else []
            for path, function in [(name, one), *((f"{name}.{at}", each) for at, each in members)]:
                said = str(getattr(function, "__annotations__", {}).get("return", ""))
                if not re.search(r"(^|\.)_", path):
                    role = "meth" if "." in path else "func"
                    for kind in set(re.findall(r"\w+", said)) - {name}:
                        found.setdefault(kind, []).append(f":{role}:`~{module}.{path}`")
    return found


def say_where_from(
    app: Sphinx, what: str, name: str, _one: object, _options: object, lines: list[str]
) -> None:
    """Say of a class that shows no example which functions return it."""
    kind = name.rpartition(".")[2]
    if what == "class" and ".. rubric:: Examples" not in lines:
        functions = app.returned_by.get(kind, [])
        lines += ["", f"Returned by {', '.join(functions)}.", ""] if functions else []


def name_papers(
    _app: Sphinx, _what: str, _name: str, _one: object, _options: object, lines: list[str]
) -> None:
    """Name the papers of a docstring by author and year, where it has letters."""
    lines[:] = spelled_out("\n".join(lines)).split("\n")


def say_in_full(command: Any) -> None:
    """Let the lists of commands below this one have their first sentences whole."""
    for each in getattr(command, "commands", {}).values():
        each.short_help = (each.help or "").split("\n\n")[0].replace("\n", " ")
        say_in_full(each)


def commands_page() -> str:
    """Return the help of every command."""
    command = typer.main.get_command(command_line)
    say_in_full(command)
    context = typer.Context(command, info_name="convexmarket")
    text = get_docs_for_click(obj=command, ctx=context, name="convexmarket")
    text = text.replace("# `convexmarket`", "# Command line", 1)
    text = re.sub(r"\[/?(bold|dim|cyan)\]", "", text)
    return re.sub(r"^ *((?:convexmarket|mkdir) .+)$", r"```sh\n\1\n```", text, flags=re.M)


def kind_of(schema: dict[str, Any]) -> str:
    """Return in words what a value may be."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    for many in ("anyOf", "oneOf"):
        if many in schema:
            return " or ".join(dict.fromkeys(kind_of(one) for one in schema[many]))
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(one)}`" for one in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if schema.get("type") == "array":
        return f"list of {kind_of(schema['items'])}" if "items" in schema else "list"
    said = schema.get("type", "any value")
    names = {"object": "table", "null": "nothing", "string": "text"}
    return " or ".join(names.get(one, one) for one in ([said] if isinstance(said, str) else said))


#: Defaults of whole tables are longer, and stand where the table is described.
LONGEST_DEFAULT = 40


def table_of(schema: dict[str, Any]) -> str:
    """Return the keys of a table of a problem file, one a line."""
    lines = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key, field in schema.get("properties", {}).items():
        required = key in schema.get("required", [])
        default = "required" if required else f"`{json.dumps(field.get('default'))}`"
        if len(default) > LONGEST_DEFAULT:
            default = "as described there"
        meaning = field.get("description", "").replace("\n", " ")
        cells = (f"`{key}`", kind_of(field), default, meaning)
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines)


def problems_page() -> str:
    """Return every table and key that a problem file may hold."""
    schema = json_schema()
    definitions = schema["$defs"]
    parts = [
        "# Problem files",
        "A TOML file says its `kind` and what that kind needs. `convexmarket schema` prints "
        "what stands here as JSON Schema, for editors.",
    ]
    kinds = {}
    for kind, at in schema["discriminator"]["mapping"].items():
        models = [one["$ref"] for one in at["oneOf"]] if isinstance(at, dict) else [at]
        for name in (model.rsplit("/", 1)[-1] for model in models):
            kinds[name] = f'`kind = "{kind}"`' + f" ({name})" * (len(models) > 1)
    for name in [*sorted(kinds), *sorted(set(definitions) - set(kinds))]:
        if "properties" not in definitions[name]:
            parts.append(f"## {name}\n\n{kind_of(definitions[name])}")
            continue
        said = definitions[name].get("description", "").split("\n\n")[0].replace("\n", " ")
        parts.append(f"## {kinds.get(name, name)}\n\n{said}\n\n{table_of(definitions[name])}")
    return "\n\n".join(parts) + "\n"


#: What is asked by the reports whose names begin so.
QUESTIONS = {
    "quickstart synthetic wdbc medical-market limits": "What does privacy cost a buyer?",
    "variants": "What does another norm, cost, limit or prior change?",
    "joint": "Does it pay to look at the data when buying?",
    "online": "What is lost when sellers come one by one?",
    "ridge": "Do the published tables of private ridge regression come out?",
    "release": "How good are released predictions?",
    "solver-study": "Which solver, and which formulation?",
}


def finding(report: Path) -> str:
    """Return the sentence with which a report begins: its finding."""
    text = report.read_text(encoding="utf-8")
    first = text.split("\n## ")[1] if "\n## Summary" in text else text
    found = re.search(r"^\*\*(.+)\*\*$", first, re.M) or re.search(r"^(At .+?\.)[ \n]", first, re.M)
    return found[1] if found else ""


def gallery_page() -> str:
    """Return the reports by the question that they answer, with one finding each."""
    parts = ["# Reports", "Each is a page of its own, with figures, tables and what repeats it."]
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
    """Write what has changed, so that only that is read again."""
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
    """Return a path in the repository, and warn where nothing is there."""
    if not (ROOT / path).exists():
        getLogger(__name__).warning("a link leads to %s, which does not exist", path)
    return path


def link_into_repository(app: Sphinx, name: str, source: list[str]) -> None:
    """Lead links to reports to their pages; name papers, and files of the repository."""
    up = "../" * name.count("/")
    markdown = str(app.env.doc2path(name)).endswith(".md")
    source[0] = spelled_out(source[0], links=markdown)
    text = re.sub(
        r"\[((?:\\.|[^\]\\])*)\]\((?:\.\./)+reports/([\w-]+)/report\.md\)",
        lambda found: f'<a href="{up}{present(f"reports/{found[2]}/index.html")}">{found[1]}</a>',
        source[0],
    )
    text = text.replace("](../reports/README.md)", f"]({up}reference/generated/gallery.md)")
    source[0] = re.sub(
        r"\[`?([^\]`]*)`?\]\((?:\.\./)+((?:convexmarket|tests|problems)/[^)]*|[A-Z]+\.md)\)",
        lambda found: f"`{found[1]}`" if present(found[2].split("#")[0]) else "",
        text,
    )


def copy_reports(app: Sphinx, failed: Exception | None) -> None:
    """Put the reports beside the pages that lead to them."""
    if failed is None and app.builder.name == "html":
        target = Path(app.outdir) / "reports"
        kept = shutil.ignore_patterns("*.json", "*.parquet", "tables")
        shutil.copytree(ROOT / "reports", target, ignore=kept, dirs_exist_ok=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the pages to the build."""
    app.returned_by = returned_by()
    app.connect("autodoc-process-docstring", say_where_from, priority=900)
    app.connect("autodoc-process-docstring", name_papers)
    app.connect("config-inited", lambda app, _config: write_pages(app))
    app.connect("source-read", link_into_repository)
    app.connect("build-finished", copy_reports)
    return {"parallel_read_safe": True}
