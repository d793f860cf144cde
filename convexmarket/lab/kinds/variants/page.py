"""The report of a market and its variants: side by side, in words, tables and figures."""

from __future__ import annotations

from functools import partial

import pandas as pd

from convexmarket.lab.kinds.variants import figures
from convexmarket.lab.kinds.variants.run import VariantsResult
from convexmarket.lab.kinds.variants.words import (
    CLOSE,
    Scene,
    at_equal,
    bought_words,
    compared_words,
    failure_words,
    group_words,
    incentive_words,
    ironing_words,
    key_words,
    objective_words,
    payment_per_seller,
    quoted,
    span_words,
)
from convexmarket.lab.report.model import Fact, Figure, Report, Section, Table
from convexmarket.lab.report.parts import (
    METHOD_WORDS,
    audit_section,
    audit_words,
    gap_words,
    reproduction_section,
    short,
)
from convexmarket.lab.report.words import NO_BREAK, format_number, share
from convexmarket.terms import PrivacyCost

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
}
_PAID_BY = {
    "exact": "exact rule",
    "constant": "reports do not matter",
    "envelope": "optimal objectives",
    "quadrature": "quadrature",
}
_MIDDLE = "Of a sweep the market in its middle is audited."
_LOGARITHMIC = (
    f"Axes are logarithmic where values span more than a factor {format_number(figures.WIDE)}."
)


def variants_report(result: VariantsResult) -> Report:
    """Describe a market and its variants.

    Parameters
    ----------
    result : VariantsResult

    Returns
    -------
    Report
        To be written by :func:`convexmarket.lab.report.render.write_folder`.
    """
    scene = Scene(result)
    sections = [
        _side_by_side_section(scene),
        _failures_section(scene),
        _groups_section(scene),
        _virtual_costs_section(scene),
        _incentives_section(scene),
        _audit_section(scene),
        _certificate_section(scene),
        Section("What this does not show", points=result.caveats),
        reproduction_section(result.problem, result.provenance, result.timings),
    ]
    return Report(
        title=result.problem.title,
        summary=_summary(scene),
        sections=tuple(section for section in sections if section is not None),
        results=result,
        facts=_facts(scene),
    )


def _largest_gap(scene: Scene) -> float:
    return float(scene.solved.gap.max()) if len(scene.solved) else 0.0


def _audited(scene: Scene) -> pd.DataFrame:
    """Return the audits that could be made."""
    audits = scene.result.audits
    return audits.dropna(subset=["max_gain"]) if "max_gain" in audits else pd.DataFrame()


def _facts(scene: Scene) -> tuple[Fact, ...]:
    points, solved, audited = scene.result.points, scene.solved, _audited(scene)
    facts = [
        Fact("variants", f"{len(scene.names)}"),
        Fact("markets solved", f"{len(solved)} of {len(points)}"),
        Fact("sellers", " to ".join(f"{n:,}" for n in sorted(set(points.n_sellers))[::-1][::-1])),
    ]
    if len(solved):
        facts.append(Fact("largest relative gap", format_number(_largest_gap(scene), digits=2)))
    truthful = points.drop_duplicates("variant").incentives == "by construction"
    facts.append(
        Fact("truthful prices by construction", f"{int(truthful.sum())} of {len(scene.names)}")
    )
    if len(audited):
        honest = audited.incentive_compatible.all() and audited.individually_rational.all()
        facts.append(
            Fact(
                "no lie of one seller pays and nobody loses, audited",
                "yes" if honest else "no",
            )
        )
    return tuple(facts)


def _summary(scene: Scene) -> tuple[str, ...]:
    paragraphs = [
        " ".join(scene.result.problem.description.split()),
        compared_words(scene),
        span_words(scene),
        ironing_words(scene),
        objective_words(scene),
        group_words(scene),
        bought_words(scene),
        failure_words(scene),
        _assurance_words(scene),
    ]
    return tuple(text for text in paragraphs if text)


def _assurance_words(scene: Scene) -> str:
    words = [incentive_words(scene)]
    if len(scene.solved):
        words.insert(0, gap_words(_largest_gap(scene), "in every market"))
    if len(_audited(scene)):
        words.append(audit_words(_audited(scene), _largest_payment(scene)))
        words.append(_MIDDLE if scene.swept else "")
    return " ".join(filter(None, words))


def _largest_payment(scene: Scene) -> float:
    return float(scene.solved.expected_payments.max())


# ---------------------------------------------------------------- the sections


def _side_by_side_section(scene: Scene) -> Section:
    prose = [
        "The guarantees sold are what variants have in common: η is their sum, and the weights a "
        "are their shares of it. A spread of ‖a‖ is that of 1/‖a‖² sellers with equal weights.",
        "The error is the objective without its payments: what spread and noise are taken to cost."
        if scene.one_error
        else "The variants measure spread differently, so that neither their objectives nor their "
        "errors can be compared. The Euclidean norm and the noise are what they are for each.",
    ]
    return Section(
        "Side by side",
        (" ".join(prose),),
        figures=(*_curve_figures(scene), *_point_figures(scene)),
        tables=(
            _side_by_side_table(scene),
            *_equal_payments_tables(scene),
            *_seller_tables(scene),
        ),
    )


def _curve_figures(scene: Scene) -> list[Figure]:
    if not scene.curves:
        return []
    shown = [name for name in scene.names if name in set(scene.solved.variant)]
    single = "; single markers are variants without a sweep" if len(scene.single) else ""
    found = [
        Figure(
            "frontier",
            "Error against expected payments, and what it consists of: spread falls with more and "
            "more equal weights, noise with more privacy. Lower is better for the buyer, further "
            f"left is cheaper. One point per swept value{single}. {_LOGARITHMIC}",
            partial(figures.frontier, scene.solved, shown, scene.curves),
            "Error against expected payments, one curve per variant, and two panels with its "
            "spread and noise. The numbers are in the table variants.",
        )
    ]
    if scene.limits:
        found.append(
            Figure(
                "limits",
                "What it costs to hold the largest guarantee down: the objective against the "
                "largest guarantee sold, one curve per limit. The lower curve protects as much for "
                f"less. {_LOGARITHMIC}",
                partial(figures.limits, scene.solved, shown, scene.limits),
                "The objective falls as a larger guarantee is allowed, one curve per limit.",
            )
        )
    for number, key in enumerate(
        dict.fromkeys(scene.swept[name] for name in scene.curves), start=1
    ):
        names = [name for name in scene.curves if scene.swept[name] == key]
        found.append(
            Figure(
                f"sweep_{number}",
                f"What the {key_words(key)} does to the objective, the largest guarantee and the "
                f"number of sellers bought from. {_LOGARITHMIC}",
                partial(
                    figures.curves_over_key,
                    scene.solved[scene.solved.variant.isin(names)],
                    shown,
                    key_words(key),
                ),
                "Three panels over the swept value. The numbers are in the table variants.",
            )
        )
    return found


def _point_figures(scene: Scene) -> list[Figure]:
    single, sellers = list(scene.single.variant), scene.result.sellers
    if not single:
        return []
    found = [
        Figure(
            "allocations",
            "Privacy sold by each seller against its sensitivity, one line per variant. A line "
            "ends at zero where the dearer sellers are not bought from; on a flat piece sellers "
            "are treated alike.",
            partial(figures.allocations, sellers[sellers.variant.isin(single)], single),
            "Lines of epsilon over sensitivity, which fall: who asks for more sells less. The "
            "numbers are in the table sellers.",
        )
    ]
    costs = _privacy_costs(scene, single)
    if len(set(costs.values())) > 1:
        found.append(
            Figure(
                "privacy_costs",
                "What losing ε of privacy costs a seller, per unit of its sensitivity, up to the "
                "largest guarantee sold. The steeper a curve, the more the next unit costs.",
                partial(figures.privacy_costs, costs, float(scene.single.epsilon_max.max())),
                "Curves of the privacy cost u over epsilon, one per variant.",
            )
        )
    return found


def _privacy_costs(scene: Scene, names: list[str]) -> dict[str, PrivacyCost]:
    """Return the privacy cost of each variant whose objective has one."""
    return {
        name: cost
        for name in names
        for term in scene.tables[name].objective.values()
        if (cost := term.build().privacy_cost) is not None
    }


def _columns(scene: Scene, names: list[str]) -> list[str]:
    """Return the columns of a table of points, the swept value and the status only if needed."""
    value = ["value"] if scene.swept else []
    status = ["status"] if len(scene.failed) else []
    return ["variant", *value, *status, *(name for name in names if name in scene.result.points)]


def _side_by_side_table(scene: Scene) -> Table:
    measure = "error" if scene.one_error else "noise"
    names = ["n_bought", "n_effective", "eta", "epsilon_max", measure, "expected_payments"]
    if "payments" in scene.solved and scene.solved.payments.notna().any():
        names.append("payments")
    frame = scene.result.points[_columns(scene, names)]
    frame = frame.astype({"n_bought": "Int64"}) if "n_bought" in frame else frame
    return Table(
        "variants",
        f"Every variant{' at every value of its sweep' if scene.swept else ''}: how many are "
        "bought from and how evenly, how much privacy, and at what price.",
        frame,
        HEADERS,
        rows_shown=60,
    )


def _equal_payments_tables(scene: Scene) -> list[Table]:
    """Compare every curve with the first at equal expected payments, point by point."""
    first, *others = scene.curves or [""]
    if not (others and scene.one_error):
        return []
    known = scene.curve(first)
    rows = [at_equal(known, scene.curve(name), "expected_payments", "error") for name in others]
    return [
        Table(
            "equal_payments",
            f"The error of every point beside that of {quoted(first)} at equal expected payments, "
            f"interpolated between its points: differences below {CLOSE:.1%} may be the "
            "interpolation's.",
            pd.concat(rows, ignore_index=True),
            {**HEADERS, "there": f"error of {quoted(first)} there", "change": "difference"},
            {"change": "+.2%"},
            rows_shown=60,
        )
    ]


def _seller_tables(scene: Scene) -> list[Table]:
    sellers = scene.result.sellers
    if sellers.empty:
        return []
    drop = [] if scene.swept else ["value"]
    drop += [] if len(scene.result.groups) else ["group"]
    drop += [] if sellers.payment.notna().any() else ["payment"]
    caption = (
        "What each seller sells, variant by variant. What it is paid is, on average over its "
        "report, the expected payment ψ(c)·u(ε)."
    )
    shown = sellers.drop(columns=drop)
    return [Table("sellers", caption, shown, HEADERS, rows_shown=10, complete=sellers)]


def _failures_section(scene: Scene) -> Section | None:
    if scene.failed.empty:
        return None
    columns = ["variant", *(["value"] if scene.swept else []), "status", "message"]
    table = Table("failures", "Markets without an answer.", scene.failed[columns], HEADERS)
    prose = "A variant without an answer is a finding too: it says which demands clash."
    return Section("What has no answer", (prose,), tables=(table,))


def _groups_section(scene: Scene) -> Section | None:
    groups = scene.result.groups
    if groups.empty:
        return None
    names = [name for name in scene.names if name in set(scene.single.variant)]
    drop = [] if scene.swept else ["value"]
    drop += [] if groups.payment_mean.notna().any() else ["payment_mean"]
    column, paid = payment_per_seller(scene)
    drawn = [
        Figure(
            "groups",
            f"Share of the weight that each group carries, and {paid} of the group, whether bought "
            "from or not. Above the dashed line a group has more say than its numbers.",
            partial(figures.group_bars, groups[groups.variant.isin(names)], names, column, paid),
            "Grouped bars by variant. The numbers are in the table groups.",
        )
    ]
    return Section(
        "The groups",
        (
            "A share of the weight is a share of the privacy bought, and of the say that a "
            "group's data has in a model. More of it means more pay, and more privacy lost.",
        ),
        figures=tuple(drawn) if names else (),
        tables=(
            Table(
                "groups",
                "The groups in every variant.",
                groups.drop(columns=drop),
                HEADERS,
                {"share_of_sellers": ".1%", "share_of_weight": ".1%"},
                rows_shown=60,
            ),
        ),
    )


def _virtual_costs_section(scene: Scene) -> Section | None:
    curves = scene.result.virtual_costs
    if curves.empty:
        return None
    return Section(
        "Virtual costs, raw and ironed",
        (
            "Where the virtual cost ψ(c) = c + F(c)/f(c) falls, a seller that asks for more would "
            "look cheaper, and no price would keep it honest. Ironing replaces ψ by its average "
            "over such an interval, so that all sellers in it are treated alike.",
            ironing_words(scene),
        ),
        figures=(
            Figure(
                "virtual_costs",
                "Density of each prior, and its virtual cost as the formula has it (raw) and as "
                "the market uses it (ironed). In the shaded intervals the raw one is replaced by "
                "its average; elsewhere, and for a regular prior everywhere, the two are the same.",
                partial(figures.virtual_costs, curves),
                "The raw curve falls in places; the ironed one is flat there.",
            ),
        ),
        tables=(
            Table("virtual_costs", "The curves of the figure.", curves, HEADERS, rows_shown=5),
        ),
    )


def _incentives_section(scene: Scene) -> Section:
    points = scene.result.points
    verdicts = points.drop_duplicates(["variant", "incentives"])[
        ["variant", "incentives", "reason"]
    ]
    prose = [incentive_words(scene)]
    tables = [Table("incentives", "Whether truthful prices exist, and why.", verdicts, HEADERS)]
    if "payments" in points and points.payments.notna().any():
        paid = points[points.payments.notna()].replace({"payments_method": _PAID_BY})
        prose.append(
            "Payments are those of A, Eq. (8): the cost of each seller, and what it would have "
            "sold at every dearer report. They make the truth its best reply, alone. Where no "
            "rule gives them exactly, the market is solved again at other reports: they follow "
            "from the optimal objectives there, or from quadrature of what would be sold."
        )
        columns = ["expected_payments", "payments", "payments_error", "payments_method"]
        tables.append(
            Table(
                "payments",
                "Payments to these sellers, and what they would be on average over the prior.",
                paid[["variant", *(["value"] if scene.swept else []), *columns]],
                HEADERS,
            )
        )
    unpaid = [name for name in scene.names if not _is_paid(scene, name)]
    if unpaid:
        prose.append(
            "Payments are not computed where they have no closed form and the file does not ask "
            "for an estimate, or where no price is known to be truthful."
        )
    return Section("Do truthful prices exist?", tuple(prose), tables=tuple(tables))


def _is_paid(scene: Scene, name: str) -> bool:
    rows = scene.solved[scene.solved.variant == name]
    return bool(len(rows)) and bool(rows.payments.notna().all())


def _audit_section(scene: Scene) -> Section | None:
    audits, audited = scene.result.audits, _audited(scene)
    if audits.empty:
        return None
    if audited.empty:
        points = tuple(f"{row.variant}: {row.message}" for row in audits.itertuples())
        return Section("The audit of incentives", ("No variant could be audited.",), points)
    drop = ["message"] if "message" in audited else []
    drop += [] if scene.swept else ["value"]
    section = audit_section(audited.drop(columns=drop), _largest_payment(scene), HEADERS)
    missed = audits[audits.max_gain.isna()]
    points = tuple(f"Not audited: {row.variant}. {row.message}" for row in missed.itertuples())
    middle = (_MIDDLE,) if scene.swept else ()
    prose = (*section.prose, *middle)
    return Section(section.heading, prose, points, section.figures, section.tables)


def _certificate_section(scene: Scene) -> Section | None:
    solved = scene.solved
    if solved.empty:
        return None
    methods = [METHOD_WORDS.get(name, "") for name in dict.fromkeys(solved.method)]
    names = ["objective", "lower_bound", "gap", "method", "solver", "solves", "solve_statuses"]
    frame = scene.result.points[_columns(scene, [*names, "seconds"])]
    return Section(
        "The certificate",
        (
            " ".join([gap_words(_largest_gap(scene), "in every market"), *methods]).strip(),
            f"{share(len(solved), len(scene.result.points), 'market').capitalize()} solved, in "
            f"{short(float(solved.seconds.sum()))} seconds of solving and "
            f"{format_number(int(solved.solves[solved.solver.notna()].sum()))} conic solves.",
        ),
        tables=(
            Table(
                "certificates",
                "Objective, lower bound and relative gap of every market, and how it was solved.",
                frame.astype({"solves": "Int64"}).assign(method=frame.method.str.replace("_", " ")),
                HEADERS,
                {"objective": ".6g", "lower_bound": ".6g"},
                rows_shown=60,
            ),
        ),
    )
