"""Audit every mechanism with all features and with more draws than in the default tests."""

from tests.attacks.test_mechanisms import audited, check, few_rows


def test_all_mechanisms_pass_their_audits():
    names = check(audited(120, few_rows(), 60))
    assert {"PrivateLogisticRegression", "PersonalizedRidge"} <= names
    assert {"TestSetRelease", "InteractiveRelease", "PublicRelease", "FunctionRelease"} <= names
