"""Every mechanism under attack, with all features and more draws."""

from convexmarket.lab.privacy_audits import audit_mechanisms
from tests.lab.kinds.builders import audits_with, check_audits, few_rows


def test_every_mechanism_holds_and_objective_perturbation_is_nearly_exhausted():
    with audits_with(120, 60):
        audited = check_audits(audit_mechanisms(0, data=few_rows()))
    assert {"PrivateLogisticRegression", "PersonalizedRidge"} <= audited
    assert {"TestSetRelease", "InteractiveRelease", "PublicRelease", "FunctionRelease"} <= audited
