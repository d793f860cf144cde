"""Two jobs, on any machine."""

import joblib
import pytest


@pytest.fixture(params=["threading", pytest.param("loky", marks=pytest.mark.campaign)])
def two_jobs(request, monkeypatch):
    """Give the setting for two jobs; they are threads, and processes in the campaign."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "2")
    with joblib.parallel_config(backend=request.param):
        yield "run.jobs=2"
