"""Files of kind "online-study": policies for sellers who arrive one by one, against hindsight.

The file states a prior and a buyer. The study lists how many sellers are expected, which fractions
of them come, and the policies; all of them see the same draws, and so does the optimum of a buyer
who knows every report beforehand.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails

from convexmarket.errors import ConvexMarketError
from convexmarket.lab.problem.base import (
    Positive,
    PriorTable,
    ProblemModel,
    RunTable,
    TableModel,
    without_repeats,
)
from convexmarket.online import AdaptivePolicy, OnlinePolicy
from convexmarket.priors import Prior

__all__ = [
    "KNOWING",
    "OnlineStudyProblem",
    "PolicyName",
    "StudyBuyerTable",
    "StudyClaimTable",
    "StudyMeasure",
    "StudyTable",
    "policy_named",
]

PolicyName = Literal["expectation", "algorithm-3", "replanned", "learnt", "guess"]

#: What is measured in every draw, of every policy.
StudyMeasure = Literal[
    "loss",
    "paid_loss",
    "ratio",
    "regret",
    "eta",
    "n_bought",
    "largest_weight",
    "payments",
]

#: Policies that start from a guess of the prior, and what each is when the prior is known.
KNOWING: dict[str, PolicyName] = {"learnt": "replanned", "guess": "expectation"}


class StudyBuyerTable(TableModel):
    """What the buyer weighs (A, Eq. 11), and how much one seller may weigh.

    The cap is relative to an average seller: of those expected for a policy, and of those who came
    for the optimum in hindsight.
    """

    mu: Positive
    sigma: Positive
    gamma: Positive
    cap: Annotated[float, Field(gt=1)] | None = None


Sizes = Annotated[tuple[Annotated[int, Field(ge=1, le=10_000_000)], ...], Field(strict=False)]
Fractions = Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(strict=False)]
Policies = Annotated[tuple[PolicyName, ...], Field(strict=False)]


def _increasing(values: tuple[float, ...]) -> tuple[float, ...]:
    if list(values) != sorted(set(values)):
        raise ValueError("the values do not increase; list them in order, each once")
    return values


class StudyTable(TableModel):
    """How many sellers are expected, which fractions of them come, and who buys.

    "expectation" and "algorithm-3" are the rules of :class:`convexmarket.OnlinePolicy`.
    "replanned" plans for the rest anew from time to time, "learnt" does so and learns the prior
    from the guess and the reports, and "guess" takes the guess for the prior throughout.
    """

    sizes: Annotated[Sizes, Field(min_length=1, max_length=30), AfterValidator(_increasing)]
    fractions: Annotated[
        Fractions, Field(min_length=1, max_length=30), AfterValidator(_increasing)
    ] = (1.0,)
    policies: Annotated[
        Policies, Field(min_length=1, max_length=20), AfterValidator(without_repeats)
    ]
    draws: Annotated[int, Field(ge=2, le=10_000)] = 20

    @field_validator("policies")
    @classmethod
    def _beside_those_who_know(cls, policies: tuple[PolicyName, ...]) -> tuple[PolicyName, ...]:
        for name, knowing in KNOWING.items():
            if name in policies and knowing not in policies:
                raise ValueError(
                    f'"{name}" is measured against "{knowing}", which knows the prior; list both'
                )
        return policies


Shape: TypeAlias = Literal["rises", "falls", "approaches 1", "falls as a power"]


class StudyClaimTable(TableModel):
    """What a paper says of a measure, and a remark on what we find.

    "rises" and "falls" go from the smallest to the largest size, or fraction; "approaches 1": the
    distance to 1 falls, to at most 1%; "falls as a power": at least as fast as ``m**exponent``.
    """

    source: Annotated[str, Field(min_length=1, max_length=100)]
    says: Annotated[str, Field(min_length=1, max_length=500)]
    measure: StudyMeasure
    shape: Shape
    over: Literal["sizes", "fractions"] = "sizes"
    policy: PolicyName | None = None
    exponent: Annotated[float, Field(lt=0)] | None = None
    remark: Annotated[str, Field(max_length=2000)] = ""

    @model_validator(mode="after")
    def _of_a_power(self) -> Self:
        if (self.shape == "falls as a power") != (self.exponent is not None):
            raise ValueError('give exponent for the shape "falls as a power", and for no other')
        return self


def policy_named(
    name: PolicyName, prior: Prior, guess: Prior | None, buyer: StudyBuyerTable, expected: int
) -> OnlinePolicy | AdaptivePolicy:
    """Return a policy of the study.

    Parameters
    ----------
    name : str
    prior, guess : Prior
        The true one, and what a buyer who does not know it starts from.
    buyer : StudyBuyerTable
    expected : int
        Sellers expected.

    Raises
    ------
    PriorError, ParameterError, ConvexMarketError
        If there is no such policy for this prior and buyer.
    """
    wants = buyer.model_dump()
    if name == "algorithm-3":
        return OnlinePolicy(prior, expected, **wants, rule="algorithm-3")
    assumed = guess if name in KNOWING and guess is not None else prior
    start = OnlinePolicy(assumed, expected, **wants)
    if name in ("replanned", "learnt"):
        return AdaptivePolicy(start, learn=name == "learnt")
    return start


def _possible(study: StudyTable, info: ValidationInfo) -> StudyTable:
    """Let every policy say what it cannot be, and the guess cover all reports."""
    if "buyer" not in info.data or "prior" not in info.data or "guess" not in info.data:
        return study  # these have errors of their own, which are reported
    prior, guess, buyer = (info.data[name] for name in ("prior", "guess", "buyer"))
    for position, name in enumerate(study.policies):
        if name in KNOWING and guess is None:
            raise _blamed(
                ("policies", position),
                name,
                f'"{name}" starts from a guess of the prior; give [guess], a prior as in [prior]',
            )
        try:
            policy_named(name, prior, guess, buyer, study.sizes[0])
        except ConvexMarketError as error:
            raise _blamed(("policies", position), name, str(error)) from None
    return study


def _blamed(path: tuple[str | int, ...], value: Any, why: str) -> ValidationError:
    detail = InitErrorDetails(
        type="value_error", loc=path, input=value, ctx={"error": ValueError(why)}
    )
    return ValidationError.from_exception_data("study", [detail])


def _unmeasured(claim: StudyClaimTable, study: StudyTable) -> str:
    """Say why the study does not measure what is claimed; nothing if it does."""
    policy = claim.policy or study.policies[0]
    if policy not in study.policies:
        return f'policy "{policy}" is not in study.policies; list it there'
    if claim.measure == "regret" and policy not in KNOWING:
        return f'"{policy}" knows the prior and has no regret; give policy "learnt" or "guess"'
    if len(study.fractions if claim.over == "fractions" else study.sizes) < 2:
        return f"study.{claim.over} has one value; give two or more"
    if claim.over == "fractions" and claim.exponent is not None:
        return "a power is one of the sizes; leave out over"
    return ""


class OnlineStudyProblem(ProblemModel):
    """Policies for sellers who arrive one by one, over how many are expected and how many come."""

    kind: Literal["online-study"]
    prior: PriorTable
    guess: PriorTable | None = None
    buyer: StudyBuyerTable
    study: Annotated[StudyTable, AfterValidator(_possible)]
    run: RunTable = RunTable()
    claims: Annotated[tuple[StudyClaimTable, ...], Field(strict=False, max_length=50)] = ()

    @field_validator("guess")
    @classmethod
    def _covers_all(cls, guess: Prior | None, info: ValidationInfo) -> Prior | None:
        prior = info.data.get("prior")
        if guess is None or prior is None:
            return guess
        (low, high), (least, most) = prior.support, guess.support
        if not (least <= low and high <= most):
            raise ValueError(
                f"the support [{least:g}, {most:g}] of the guess does not hold all reports, which "
                f"are in [{low:g}, {high:g}]; give a wider guess"
            )
        return guess

    @field_validator("claims")
    @classmethod
    def _measured(
        cls, claims: tuple[StudyClaimTable, ...], info: ValidationInfo
    ) -> tuple[StudyClaimTable, ...]:
        """Check that the study measures what is claimed."""
        study = info.data.get("study")
        if study is None:
            return claims
        for position, claim in enumerate(claims):
            if wrong := _unmeasured(claim, study):
                raise _blamed((position,), claim, wrong)
        return claims

    def policy(self, name: PolicyName, expected: int) -> OnlinePolicy | AdaptivePolicy:
        """Return a policy of the study for so many expected sellers."""
        return policy_named(name, self.prior, self.guess, self.buyer, expected)
