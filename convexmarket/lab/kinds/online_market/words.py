"""What the report of an online market says in sentences that depend on what came out."""

from __future__ import annotations

from typing import Any

from convexmarket.lab.kinds.online_market.market import OnlineMarketResult
from convexmarket.lab.report.parts import promise_words, short
from convexmarket.lab.report.words import count, equals, format_number, format_percent, listing

__all__ = [
    "bought_words",
    "came_words",
    "cap_words",
    "error_words",
    "fraction_words",
    "kept_words",
    "largest_words",
    "loss_words",
    "optimality_words",
    "prior_words",
    "rounded",
    "unused_words",
    "why_words",
]


def came_words(result: OnlineMarketResult) -> str:
    """Say who came, what they answered, and what that came to."""
    realised, counts = result.summary["realised"], result.summary["counts"]
    expected = result.problem.buyer.expected_sellers
    parts = [f"{count(counts['accepted'], 'seller')} accepted"]
    parts += [
        f"{counts[status]:,} {words}"
        for status, words in (
            ("declined", "declined or did not answer"),
            ("nothing bought", "were offered nothing, because their privacy is too dear"),
        )
        if counts[status]
    ]
    came = f"Of {count(expected, 'seller')} expected, {counts['quoted']:,} came and were quoted"
    if counts["quoted"] == expected:
        came = f"All {count(expected, 'seller')} that were expected came and were quoted"
    away = (
        f" {count(counts['turned away'], 'more seller')} came after the expected number; the "
        "market had stopped."
        if counts["turned away"]
        else ""
    )
    return (
        f"{came}: {listing(parts)}. Those who accepted sold {equals('η', realised['eta'])} in all, "
        f"for {short(realised['payments'])}. The model was trained once, on their rows.{away}"
    )


def kept_words(result: OnlineMarketResult) -> str:
    """Say whether the model keeps what was sold to every seller."""
    excess = result.model["largest_excess_over_sold"]
    if excess <= 0:
        return "The total guarantee of every seller is at most what was sold to it."
    return (
        f"The total guarantee of a seller is up to {short(excess)} above what was sold to it, "
        f"because the problem asks for calibration = “{result.problem.learner.calibration}”."
    )


def largest_words(result: OnlineMarketResult) -> str:
    """Say what the largest guarantee promises."""
    largest = float(result.offers.guarantee.max())
    return f"The largest is {equals('ε', largest)}: {promise_words(largest)}"


def optimality_words(result: OnlineMarketResult) -> str:
    """Say in which sense the plans are the best ones."""
    if result.problem.buyer.rule == "algorithm-3":
        return (
            "Optimality: the plan is Algorithm 3 of the paper, which comes close to the plan of "
            "the general rule for many sellers, if the prior is correct and all accept."
        )
    text = (
        "Optimality: a plan for all sellers has the smallest loss with expectations in the place "
        "of sums, if its prior is correct and all accept. That is what many sellers come close to; "
        "of few sellers the loss is larger on average, and another plan might do better."
    )
    if len(result.plans) > 1 and result.problem.plan.replan:
        text += " Of the later ones nothing is proved: they are the best that a search found."
    return text


def error_words(result: OnlineMarketResult) -> str:
    """Say how often the model is wrong on public rows, or why that is not known."""
    errors = result.errors
    if errors is None:
        return (
            "No error is given. There are no public rows to measure one on, and measuring it on "
            "the rows that were sold would spend privacy that nobody sold."
        )
    better = errors["error"] < errors["error_of_one_class"]
    text = (
        f"The model is wrong on {format_percent(errors['error'])} of "
        f"{count(errors['rows'], 'public row')}; always naming the more common class would be "
        f"wrong on {format_percent(errors['error_of_one_class'])}."
    )
    return text if better else f"{text} So little privacy was sold that the model tells nothing."


def bought_words(result: OnlineMarketResult) -> str:
    """Say from whom the first plan buys."""
    highest = float(result.plans.highest_sensitivity.iloc[0])
    if float(result.plans.eta.iloc[0]) == 0:
        return "nothing is bought before the first new plan, as the file's prior is a guess"
    if highest >= result.problem.prior.support[1]:
        return "something is bought at every sensitivity that the prior knows"
    return f"nothing is bought above a sensitivity of {short(highest)}"


def loss_words(result: OnlineMarketResult) -> str:
    """Say what the expected loss of a plan leaves out."""
    if len(result.plans) > 1 and result.problem.plan.replan:
        return "; the expected loss of a later plan leaves out what was paid before."
    return "."


def why_words(result: OnlineMarketResult) -> str:
    """Say what new plans take into account."""
    plan = result.problem.plan
    words = {
        (True, False): ", for the sellers still to come and given what was sold so far",
        (False, True): ", with the prior learnt from the reports so far",
        (True, True): (
            ", for the sellers still to come, given what was sold so far, and with the prior "
            "learnt from the reports so far"
        ),
    }
    return words.get((plan.replan, plan.learn), "")


def fraction_words(result: OnlineMarketResult) -> str:
    """Say what Theorem V.1 says of fewer sellers than expected."""
    expected = result.problem.buyer.expected_sellers
    if result.fraction >= 1:
        return (
            "All sellers that the plan counted on came. Theorem V.1 of the paper is about fewer; "
            "more would have been turned away, because the plan has no use for them."
        )
    return (
        f"Only a fraction {equals('ξ', result.fraction)} of the {expected:,} sellers that the plan "
        f"counted on came. {_theorem(result)} What was promised to sellers does not depend on how "
        "many come."
    )


def _theorem(result: OnlineMarketResult) -> str:
    if result.problem.prior.support[0] > 0 or result.problem.buyer.cap is not None:
        return (
            "Theorem V.1 of the paper is about that, but it does not apply here: it is for markets "
            "without a cap and for priors with sellers whose privacy costs next to nothing."
        )
    return (
        "Theorem V.1 of the paper is about that: for a separable data set and a prior with sellers "
        "whose privacy costs next to nothing, the probability that the buyer's objective exceeds "
        "its bound still falls exponentially, with the exponent multiplied by ξ. It is a statement "
        "about many sellers and says nothing of these numbers."
    )


def prior_words(result: OnlineMarketResult) -> str:
    """Say which prior the loss is taken under, where that is not plain."""
    if not result.problem.plan.learn:
        return ""
    return (
        "ψ is that of the prior in the problem file, which is a first guess here: the loss with "
        "the payments made does not depend on it."
    )


def cap_words(summary: dict[str, Any], ratio: float) -> str:
    """Say what became of the weights, and of the cap on them."""
    realised, limit = summary["realised"], summary["weight_limit"]
    text = (
        f"ε/η. The guarantees were promised one by one, for a planned η {short(ratio)} times the "
        "η that was sold, so a weight in the model is about as many times what was planned for it."
    )
    largest = realised["largest_weight"]
    if limit is None:
        return text
    word = "above" if largest > limit * (1 + 1e-12) else "within"
    return (
        f"{text} The cap binds the plan, {short(limit)} for each seller. The largest weight in "
        f"the model is {short(largest)}, {word} it; no guarantee is larger than what was sold, "
        "whatever the weights are."
    )


def unused_words(number: int) -> str:
    """Say how many rows were left alone."""
    if not number:
        return "Every row in the data belongs to a seller who accepted."
    belong = "belongs to somebody" if number == 1 else "belong to people"
    used = "was" if number == 1 else "were"
    return f"{count(number, 'row')} in the data {belong} who sold nothing, and {used} not used."


def rounded(money: float, tolerance: float) -> str:
    """Write an amount; what is within the tolerance is nothing."""
    if 0 < abs(money) <= tolerance:
        return "zero up to rounding"
    return format_number(money, digits=2)
