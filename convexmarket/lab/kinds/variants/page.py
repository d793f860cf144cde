"""What the page of a market and its variants shows; its words are in ``page.md.j2``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.variants.comparing import CLOSE, at_equal, compared, flat_pieces
from convexmarket.lab.kinds.variants.problem import VariantsProblem
from convexmarket.lab.kinds.variants.run import SOLVED, without_dust
from convexmarket.lab.problem.declared import MarketTable
from convexmarket.lab.report.marks import Curve, Dots
from convexmarket.lab.report.model import Figure, Report, Table
from convexmarket.lab.report.page import page
from convexmarket.lab.report.parts import reports_words, select
from convexmarket.lab.report.words import NO_BREAK, format_number
from convexmarket.lab.result import Result

__all__ = ["variants_report"]

HEADERS = {
    "n_bought": "sellers bought from",
    "n_effective": "as many equal sellers",
    "eta": f"η, sum of{NO_BREAK}ε",
    "epsilon": "ε sold",
    "epsilon_max": "largest ε sold",
    "epsilon_mean": "ε per seller",
    "error": "error (objective without payments)",
    "spread": "spread ‖a‖",
    "noise": "noise η⁻¹",
    "value": "swept value",
    "message": "why",
    "reason": "why",
    "expected_payment": "expected payment ψ(c)·u(ε)",
    "density": "density f(c)",
    "raw": "raw ψ",
    "ironed": "ironed ψ",
    "sensitivity": "sensitivity c",
    "virtual_cost": "virtual cost ψ(c)",
    "share_of_weight": "share of the weight",
    "share_of_sellers": "share of the sellers",
    "expected_payment_mean": "expected payment per seller",
    "payment_mean": "payment per seller",
    "incentives": "truthful prices",
    "payments_error": "estimated error",
    "payments_method": "computed by",
    "solve_statuses": "what the solver said",
    "max_rise": "largest rise of ε with the report",
    "max_gain": "largest gain from a misreport",
    "min_surplus": "smallest surplus",
    "change": "difference",
}
FORMATS = {
    **dict.fromkeys(("share_of_sellers", "share_of_weight"), ".1%"),
    **dict.fromkeys(("objective", "lower_bound"), ".6g"),
    "change": "+.2%",
}
PAID_BY = {
    "exact": "exact rule",
    "constant": "reports do not matter",
    "envelope": "optimal objectives",
    "quadrature": "quadrature",
}
#: Swept keys that limit what a single seller may be asked for.
LIMITS = ("constraints.cap", "constraints.max_epsilon")
#: What the papers call the weight of a term.
GREEK = {"spread": "μ", "noise": "σ", "payments": "γ"}
#: Relative differences below this are called none.
SAME = 1e-4
#: Above this ratio of the largest to the smallest value a horizontal axis is logarithmic.
WIDE = 4.0
#: The figures that do not stand where the variants are side by side.
ELSEWHERE = ("groups", "virtual_costs", "densities")
_SENSITIVITY = "sensitivity c (money per ε)"
_EXPECTED = "expected payments (money)"


def variants_report(result: Result[VariantsProblem]) -> Report:
    """Describe a market and its variants."""
    scene = Scene(result)
    solved, audited = scene.solved, scene.audited
    figures = _figures(scene)
    return page(
        "convexmarket.lab.kinds.variants",
        result,
        facts=_facts(scene),
        tables=_tables(scene),
        figures=figures,
        scene=scene,
        reports=reports_words(
            table.sellers for variant in result.problem.variants for table in variant.markets
        ),
        compare=[drawing.name for drawing in figures if drawing.name not in ELSEWHERE],
        close=CLOSE,
        same=SAME,
        comparisons=_comparisons(scene),
        bought=sorted(scene.single.to_dict("records"), key=lambda row: row["n_effective"]),
        ranges=_ranges(scene),
        objectives=_objectives(scene),
        heard=_heard(scene),
        ironed=_ironed(scene),
        audited=audited,
        missed=[
            row
            for row in result.tables["audits"].to_dict("records")
            if pd.isna(row.get("max_gain", np.nan))
        ],
        largest_payment=solved.expected_payments.max() if len(solved) else 0.0,
        largest_gap=scene.largest_gap,
        where="in every market",
        methods=list(dict.fromkeys(solved.method)) if len(solved) else [],
        unpaid=[name for name in scene.names if not scene.is_paid(name)],
    )


@dataclass(frozen=True)
class Scene:
    """The result with what all of the page asks for."""

    result: Result[VariantsProblem]

    @cached_property
    def names(self) -> list[str]:
        """The variants, in the order of the file."""
        return [variant.name for variant in self.result.problem.variants]

    @cached_property
    def swept(self) -> dict[str, str]:
        """The swept key of each variant that has one."""
        variants = self.result.problem.variants
        return {item.name: item.sweep.key for item in variants if item.sweep is not None}

    @cached_property
    def solved(self) -> pd.DataFrame:
        """The points that have an answer."""
        return select(self.result.tables["points"], status=SOLVED)

    @cached_property
    def single(self) -> pd.DataFrame:
        """Those of variants that are one market each."""
        return self.solved[~self.solved.variant.isin(list(self.swept))]

    @cached_property
    def failed(self) -> pd.DataFrame:
        """The points without an answer."""
        return self.result.tables["points"][self.result.tables["points"].status != SOLVED]

    @cached_property
    def curves(self) -> list[str]:
        """The variants with a sweep of which two points or more have an answer."""
        return [name for name in self.swept if len(self.curve(name)) > 1]

    @cached_property
    def tables(self) -> dict[str, MarketTable]:
        """What each variant states; of a sweep, at its first value."""
        return {item.name: item.markets[0] for item in self.result.problem.variants}

    @cached_property
    def one_error(self) -> bool:
        """Whether all variants measure spread and noise alike, so that errors can be compared."""
        errors = [
            {label: term for label, term in table.objective.items() if not term.builds.pays}
            for table in self.tables.values()
        ]
        return all(error == errors[0] for error in errors)

    @cached_property
    def limits(self) -> list[str]:
        """The curves that tighten a limit on single sellers of the same market."""
        names = [name for name in self.curves if self.swept[name] in LIMITS]
        same = [name for name in names if self.differ(names[0], name) <= {"constraints"}]
        by_kind = sorted(same, key=lambda name: -LIMITS.index(self.swept[name]))
        return by_kind if len(same) > 1 else []

    @cached_property
    def audited(self) -> pd.DataFrame:
        """The audits that could be made."""
        audits = self.result.tables["audits"]
        return audits.dropna(subset=["max_gain"]) if "max_gain" in audits else audits[:0]

    @property
    def largest_gap(self) -> float:
        """The largest relative gap of any market."""
        return float(self.solved.gap.max()) if len(self.solved) else 0.0

    def differ(self, first: str, second: str) -> set[str]:
        """Return the parts of the market in which two variants differ."""
        left, right = self.tables[first], self.tables[second]
        parts = ("sellers", "prior", "objective", "constraints")
        return {part for part in parts if getattr(left, part) != getattr(right, part)}

    def curve(self, name: str) -> pd.DataFrame:
        """Return the answered points of one variant, in the order of what is swept."""
        return select(self.solved, variant=name).sort_values("value")

    def key(self, name: str) -> str:
        """Return what the swept key of a variant is called."""
        *_, table, last = self.swept[name].split(".")
        if last == "weight":
            return " ".join(filter(None, ["weight", GREEK.get(table), "of", table]))
        return {"cap": "cap k", "max_epsilon": "largest ε allowed"}.get(last, last)

    def is_paid(self, name: str) -> bool:
        """Return whether the payments of a variant are known."""
        rows = select(self.solved, variant=name)
        return bool(len(rows)) and bool(rows.payments.notna().all())


# ------------------------------------------------------------------------------- what was found


def _facts(scene: Scene) -> list[tuple[str, str]]:
    points, audited = scene.result.tables["points"], scene.audited
    sizes = sorted(set(points.n_sellers))
    facts = [
        ("variants", f"{len(scene.names)}"),
        ("markets solved", f"{len(scene.solved)} of {len(points)}"),
        ("sellers", " to ".join(f"{size:,}" for size in dict.fromkeys((sizes[0], sizes[-1])))),
    ]
    if len(scene.solved):
        facts.append(("largest relative gap", format_number(scene.largest_gap, digits=2)))
    truthful = (points.incentives == "by construction").groupby(points.variant).all()
    facts.append(("truthful prices by construction", f"{truthful.sum()} of {len(scene.names)}"))
    if len(audited):
        honest = audited.incentive_compatible.all() and audited.individually_rational.all()
        words = "no lie of one seller pays and nobody loses, audited"
        facts.append((words, "yes" if honest else "no"))
    return facts


def _comparisons(scene: Scene) -> list[dict[str, Any]]:
    """Compare limits at equal largest guarantees, and curves at equal expected payments."""
    pairs = [("largest guarantees", "objective", scene.limits)]
    pairs += [("expected payments", "error", scene.curves if scene.one_error else [])]
    return [
        compared(_against(scene, names[0], other, equal))
        | {"first": names[0], "other": other, "equal": equal, "column": column}
        for equal, column, names in pairs
        for other in names[1:]
    ]


def _against(scene: Scene, first: str, other: str, equal: str) -> pd.DataFrame:
    columns = {
        "largest guarantees": ("epsilon_max", "objective"),
        "expected payments": ("expected_payments", "error"),
    }[equal]
    return at_equal(scene.curve(first), scene.curve(other), *columns)


def _ranges(scene: Scene) -> list[dict[str, Any]]:
    """Return which variant has the least, and which the most, of what can be compared."""
    columns = [
        ("epsilon_max", "largest guarantee sold", "ε"),
        ("expected_payments", "sum of expected payments", ""),
        *([("error", "error", "")] if scene.one_error else []),
    ]
    found = []
    for column, subject, symbol in columns if len(scene.single) > 1 else []:
        rows = scene.single.set_index("variant")[column].dropna()
        if len(rows):
            low, high = str(rows.idxmin()), str(rows.idxmax())
            found.append(
                {"subject": subject, "symbol": symbol, "low": rows[low], "in_low": low}
                | {"high": rows[high], "in_high": high, "names": list(rows.index)}
                | {"one": format_number(rows[low]) == format_number(rows[high])}
            )
    return found


def _objectives(scene: Scene) -> dict[str, Any]:
    """Return what another constraint, or another prior, does to the objective of the first."""
    found: dict[str, Any] = {"constrained": [], "others": []}
    rows = scene.single
    if len(rows) > 1 and rows.variant.iloc[0] == scene.names[0]:
        found["first"] = first = rows.iloc[0]
        for row in rows.iloc[1:].itertuples():
            change = (row.objective - first.objective) / abs(first.objective)
            parts = scene.differ(first.variant, str(row.variant))
            if parts and (parts == {"constraints"} or parts <= {"sellers", "prior"}):
                which = "constrained" if parts == {"constraints"} else "others"
                found[which].append({"variant": row.variant, "change": change})
    return found


def _heard(scene: Scene) -> dict[str, Any] | None:
    """Return the group whose share of the weight differs most between variants."""
    groups = _single_groups(scene)
    if groups.empty:
        return None
    weight = groups.groupby("group", sort=False).share_of_weight.agg(["min", "max"])
    group = (weight["max"] - weight["min"]).idxmax()
    rows = select(groups, group=group).sort_values("share_of_weight").to_dict("records")
    return {"low": rows[0], "high": rows[-1], "column": (paid := _paid(groups))} | {
        "paid": HEADERS[paid]
    }


def _single_groups(scene: Scene) -> pd.DataFrame:
    groups = scene.result.tables["groups"]
    return groups[groups.variant.isin(scene.single.variant)] if len(groups) else groups


def _paid(groups: pd.DataFrame) -> str:
    """Return the column of payments where all are computed, else of their average."""
    return "payment_mean" if groups.payment_mean.notna().all() else "expected_payment_mean"


def _ironed(scene: Scene) -> list[dict[str, Any]]:
    """Return which priors are ironed, where, and what that does to the sellers there."""
    curves, found = scene.result.tables["virtual_costs"], []
    irregular = curves[~curves.regular] if len(curves) else pd.DataFrame()
    for place, rows in irregular.groupby(["variant", "group"], sort=False) if len(curves) else ():
        variant, group = map(str, place)
        pieces = flat_pieces(rows)
        inside = [rows[rows.sensitivity.between(*piece)] for piece in pieces]
        pools = []
        if variant in set(scene.single.variant):
            sellers = select(scene.result.tables["sellers"], variant=variant)
            sellers = select(sellers, group=group) if group else sellers
            levels = [part.ironed.iloc[0] for part in inside]
            pools = [sellers[np.isclose(sellers.virtual_cost, x, rtol=1e-6)] for x in levels]
        found.append(
            {
                "variant": variant,
                "group": group,
                "pieces": pieces,
                "share": sum(len(part) - 1 for part in inside) / len(rows),  # of the quantiles
                "pools": [pool.epsilon for pool in pools if len(pool)],
            }
        )
    return found


# --------------------------------------------------------------------------------------- figures


def _figures(scene: Scene) -> list[Figure]:
    found = _curve_figures(scene) if scene.curves else []
    found += _allocation_figures(scene) if len(scene.single) else []
    groups = _single_groups(scene)
    found += [_group_figure(groups)] if len(groups) else []
    curves = scene.result.tables["virtual_costs"]
    return found + (_virtual_cost_figures(curves) if len(curves) else [])


def _panels(
    scene: Scene, points: pd.DataFrame, x: str, x_label: str, columns: dict[str, str], height: float
) -> Curve:
    """Draw several columns over another, each in a panel of its own, one series per variant."""
    shown = points.assign(order=points.value.fillna(0.0))
    long = [
        shown[["variant", "order", x]].assign(y=shown[column], panel=words)
        for column, words in columns.items()
    ]
    wide = bool(0 < WIDE * shown[x].min() < shown[x].max())
    positive = bool((shown[list(columns)].min() > 0).all())
    return Curve(
        pd.concat(long, ignore_index=True), x=x, y="y", hue="variant", names=_series(scene),
        panels="panel", free="y", order="order", x_label=x_label + wide * f" (log{NO_BREAK}scale)",
        height=height, log="x" * wide + "y" * positive,
    )  # fmt: skip


def _series(scene: Scene) -> list[str]:
    """Return all that has an answer, so that a variant looks the same in every figure."""
    return list(dict.fromkeys(scene.solved.variant))


def _curve_figures(scene: Scene) -> list[Figure]:
    points, first = scene.solved.copy(), scene.curves[0]
    single = "; single markers are variants without a sweep" if len(scene.single) else ""
    found = []
    if scene.one_error:
        words, columns = "", {"error": "error: spread and noise terms"}
        if len(scene.curves) > 1:
            points["ratio"] = _ratios(scene, scene.curves, "expected payments")
            columns["ratio"] = f"error, as a multiple of that of “{first}”"
            words = (
                f" On the right each error is divided by that of “{first}” at equal expected "
                "payments: curves that lie on each other are told apart there."
            )
        found.append(
            Figure(
                "frontier",
                "Error against expected payments. Lower is better for the buyer, further left is "
                f"cheaper.{words} One point per swept value{single}.",
                _panels(scene, points, "expected_payments", _EXPECTED, columns, 3.6),
                "Error against expected payments, one curve per variant. The numbers are in the "
                "table variants.",
            )
        )
    found.append(
        Figure(
            "parts",
            "What an error consists of: spread falls with more and more equal weights, noise with "
            f"more privacy. One point per swept value{single}.",
            _panels(
                scene, points, "expected_payments", _EXPECTED,
                {"spread": "spread ‖a‖", "noise": "noise 1/η"}, 3.2,
            ),
            "Spread and noise against expected payments, one curve per variant. The numbers are "
            "in the table variants.",
        )
    )  # fmt: skip
    if scene.limits:
        best = scene.limits[0]
        shown = points.assign(ratio=_ratios(scene, scene.limits, "largest guarantees"))
        found.append(
            Figure(
                "limits",
                "What it costs to hold the largest guarantee down: the objective against the "
                "largest guarantee sold, one curve per limit, and on the right as a multiple of "
                f"that of “{best}” at equal largest guarantees. The lower curve protects as much "
                "for less.",
                _panels(
                    scene, shown[shown.variant.isin(scene.limits)], "epsilon_max", "largest ε sold",
                    {"objective": "objective", "ratio": f"as a multiple of that of “{best}”"}, 3.6,
                ),
                "The objective falls as a larger guarantee is allowed, one curve per limit.",
            )
        )  # fmt: skip
    keys = dict.fromkeys(scene.swept[name] for name in scene.curves)
    for number, key in enumerate(keys, start=1):
        names = [name for name in scene.curves if scene.swept[name] == key]
        words = scene.key(names[0])
        columns = {
            "objective": "objective",
            "epsilon_max": "largest ε sold",
            "n_bought": "sellers bought from",
        }
        found.append(
            Figure(
                f"sweep_{number}",
                f"What the {words} does to the objective, the largest guarantee and the number of "
                "sellers bought from.",
                _panels(scene, points[points.variant.isin(names)], "value", words, columns, 2.9),
                "Three panels over the swept value. The numbers are in the table variants.",
            )
        )
    return found


def _ratios(scene: Scene, names: list[str], equal: str) -> pd.Series:
    """Return one more than the change of every point against the first curve, by its index."""
    return 1.0 + pd.concat([_against(scene, names[0], name, equal).change for name in names])


def _allocation_figures(scene: Scene) -> list[Figure]:
    names = list(scene.single.variant)
    sellers = without_dust(scene.result.tables["sellers"])
    groups = bool((sellers.group != "").any())
    found = [
        Figure(
            "allocations",
            "Privacy sold by each seller against its sensitivity, one line per variant. A line "
            "ends at zero where the dearer sellers are not bought from; on a flat piece sellers "
            "are treated alike.",
            Curve(
                sellers[sellers.variant.isin(names)], x="sensitivity", y="epsilon", hue="variant",
                names=_series(scene), panels="group" if groups else None,
                x_label=_SENSITIVITY, y_label="privacy sold, ε", height=4.0,
            ),
            "Lines of epsilon over sensitivity, which fall: who asks for more sells less. The "
            "numbers are in the table sellers.",
        )
    ]  # fmt: skip
    costs = {
        name: cost
        for name in names
        for term in scene.tables[name].objective.values()
        if (cost := term.build().privacy_cost) is not None
    }
    if len(set(costs.values())) > 1:
        epsilon = np.linspace(0.0, float(scene.single.epsilon_max.max()), 121)
        rows = [
            pd.DataFrame({"variant": name, "epsilon": epsilon, "cost": cost(epsilon)})
            for name, cost in costs.items()
        ]
        found.append(
            Figure(
                "privacy_costs",
                "What losing ε of privacy costs a seller, per unit of its sensitivity, up to the "
                "largest guarantee sold. The steeper a curve, the more the next unit costs.",
                Curve(
                    pd.concat(rows), x="epsilon", y="cost", hue="variant", names=_series(scene),
                    x_label="privacy sold, ε", y_label="privacy cost u(ε)", height=3.0,
                ),
                "Curves of the privacy cost u over epsilon, one per variant.",
            )
        )  # fmt: skip
    return found


def _group_figure(groups: pd.DataFrame) -> Figure:
    column = _paid(groups)
    sizes = groups.drop_duplicates("group")
    weight, paid = "share of the weight, %", f"{HEADERS[column]} (money)"
    shown = [
        groups.assign(panel=weight, x=100 * groups.share_of_weight),
        groups.assign(panel=paid, x=groups[column]),
        sizes.assign(panel=weight, x=100 * sizes.share_of_sellers, variant="share of the sellers"),
    ]
    return Figure(
        "groups",
        f"Share of the weight that each group carries, and {HEADERS[column]} of the group, whether "
        "bought from or not. Right of its share of the sellers a group has more say than its "
        "numbers.",
        Dots(
            pd.concat(shown, ignore_index=True), x="x", y="group", hue="variant", panels="panel",
            free="x", height=1.6 + 0.16 * len(groups),
        ),
        "Two dot plots by group and variant. The numbers are in the table groups.",
    )  # fmt: skip


def _virtual_cost_figures(curves: pd.DataFrame) -> list[Figure]:
    within = curves.group.astype(str)
    rows = curves.assign(prior=curves.variant.where(within == "", curves.variant + ", " + within))
    # Near the top of a support psi may grow without bound.
    top = 1.3 * rows.groupby("prior")[["raw", "ironed"]].quantile(0.9).max(axis=1)
    long = [
        rows.assign(psi=rows[column], cost=words)
        for column, words in (("ironed", "ironed ψ"), ("raw", "raw ψ, c + F/f"))
    ]
    drawn = pd.concat(long, ignore_index=True)
    drawn = drawn[drawn.psi <= drawn.prior.map(top)]
    found = [
        Figure(
            "virtual_costs",
            "Virtual cost of each prior, as the formula has it (raw) and as the market uses it "
            "(ironed). Where the ironed one is flat the raw one is replaced by its average; "
            "elsewhere, and for a regular prior everywhere, the two are the same.",
            Curve(
                drawn, x="sensitivity", y="psi", hue="cost", panels="prior", free="x",
                x_label=_SENSITIVITY, y_label="virtual cost ψ", height=3.6,
            ),
            "The raw curve falls in places; the ironed one is flat there.",
        )
    ]  # fmt: skip
    if rows.density.notna().any():
        found.append(
            Figure(
                "densities",
                "The density of each prior. Where it falls fast and rises again, the virtual cost "
                "may fall.",
                Curve(
                    rows, x="sensitivity", y="density", hue="prior", x_label=_SENSITIVITY,
                    y_label="density f(c)", height=2.8,
                ),
                "Curves of the densities over the sensitivity. The numbers are in the table "
                "virtual costs.",
            )
        )  # fmt: skip
    return found


# ---------------------------------------------------------------------------------------- tables


def _tables(scene: Scene) -> list[Table]:
    result, solved, groups = scene.result, scene.solved, scene.result.tables["groups"]
    points = result.tables["points"].astype(
        {"n_bought": "Int64", "solves": "Int64"} if len(solved) else {}
    )
    value = ["value"] if scene.swept else []
    place = ["variant", *value, *(["status"] if len(scene.failed) else [])]
    sellers = without_dust(result.tables["sellers"])
    found: list[Table] = []

    def add(name: str, caption: str, frame: pd.DataFrame, rows: int = 60, **more: Any) -> None:
        kept = frame.drop(columns=[] if value else ["value"], errors="ignore")
        if len(kept):
            found.append(Table(name, caption, kept, HEADERS, FORMATS, rows, **more))

    def known(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
        """Leave out the columns that nothing is known of."""
        return frame[[name for name in names if name in frame and frame[name].notna().any()]]

    measures = ("n_bought", "n_effective", "eta", "epsilon_max")
    error = "error" if scene.one_error else "noise"
    add(
        "variants",
        f"Every variant{' at every value of its sweep' if value else ''}: how many are bought from "
        "and how evenly, how much privacy, and at what price.",
        known(points, *place, *measures, error, "expected_payments", "payments"),
    )
    verdicts = points.drop_duplicates(["variant", "incentives"])
    add(
        "incentives",
        "Whether truthful prices exist, and why.",
        verdicts[["variant", "incentives", "reason"]],
    )
    add(
        "failures",
        "Markets without an answer.",
        scene.failed[["variant", *value, "status", "message"]],
    )
    if len(scene.curves) > 1 and scene.one_error:
        first, *others = scene.curves
        rows = [_against(scene, first, name, "expected payments") for name in others]
        add(
            "equal_payments",
            f"The error of every point beside that of “{first}” at equal expected payments, "
            f"interpolated between its points: differences below {CLOSE:.1%} may be the "
            "interpolation's.",
            pd.concat(rows, ignore_index=True).rename(
                columns={"there": f"error of “{first}” there"}
            ),
        )
    if len(sellers):
        add(
            "sellers",
            "What each seller sells, variant by variant. What it is paid is, on average over its "
            "report, the expected payment ψ(c)·u(ε). Where a solver's rounding leaves next to "
            "nothing, nothing is sold; the stored results hold the rest.",
            known(sellers if len(groups) else sellers.drop(columns="group"), *sellers.columns),
            rows=10,
            complete=sellers,
        )
    add("groups", "The groups in every variant.", known(groups, *groups.columns))
    add(
        "virtual_costs",
        "Density, and raw and ironed virtual cost, at equidistant quantiles of each prior.",
        result.tables["virtual_costs"],
        rows=5,
    )
    if "payments" in points:
        paid = points[points.payments.notna()].replace({"payments_method": PAID_BY})
        columns = ["expected_payments", "payments", "payments_error", "payments_method"]
        add(
            "payments",
            "Payments to these sellers, and what they would be on average over the prior.",
            paid[["variant", *value, *columns]],
        )
    add(
        "audits",
        "Largest gain of any seller alone from any misreport, and smallest surplus of any seller "
        "who tells the truth.",
        scene.audited.drop(columns="message", errors="ignore"),
    )
    if len(solved):
        columns = ["objective", "lower_bound", "gap", "method", "solver", "solves"]
        certificates = points[[*place, *columns, "solve_statuses", "seconds"]]
        add(
            "certificates",
            "Objective, lower bound and relative gap of every market, and how it was solved.",
            certificates.assign(method=certificates.method.str.replace("_", " ")),
        )
    return found
