"""What mu and sigma follow from, in place of two numbers chosen by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic_core import CoreSchema

from convexmarket.lab.problem.base import Positive, Share, TableModel
from convexmarket.learners import logistic_risk_constants

__all__ = ["RiskTable", "WithRisk"]


class RiskTable(TableModel):
    """How sure the bound on the errors of logistic regression is to be, and of which models.

    ``max_norm`` bounds the norm of the model times that of the rows (A, Theorem II.4, with the
    constants that are proven).
    """

    n_features: Annotated[int, Field(ge=1, le=1_000_000)]
    max_norm: Positive = 1.0
    failure_probability: Share = 0.05
    noise_failure_probability: Share = 0.05

    def constants(self) -> dict[str, float]:
        """Return mu and sigma."""
        told = (self.failure_probability, self.noise_failure_probability, self.max_norm)
        return dict(
            zip(("mu", "sigma"), logistic_risk_constants(*told, self.n_features), strict=True)
        )


class WithRisk(TableModel):
    """A table with mu and sigma, or with ``risk``, from which they follow."""

    risk: RiskTable | None = None

    @model_validator(mode="before")
    @classmethod
    def _constants_of_risk(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or data.get("risk") is None:
            return data
        try:
            wanted = RiskTable.model_validate(data["risk"]).constants()
        except ValidationError:  # which is told of the table itself
            wanted = {"mu": 1.0, "sigma": 1.0}
        for name, number in wanted.items():
            if name in data and not np.array_equal(np.ravel(data[name]), [number]):
                raise ValueError(f"{name} follows from risk; leave out {name}, or risk")
        listed = "tuple" in str(cls.model_fields["mu"].annotation)
        return {**data, **{name: [n] if listed else n for name, n in wanted.items()}}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        reference = super().__get_pydantic_json_schema__(core, handler)
        schema = handler.resolve_ref_schema(reference)
        needed = schema.get("required", [])
        schema["required"] = [name for name in needed if name not in ("mu", "sigma")]
        schema["anyOf"] = [{"required": ["mu", "sigma"]}, {"required": ["risk"]}]
        return reference
