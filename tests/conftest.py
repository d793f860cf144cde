"""Hypothesis draws new examples on every local run, and the same ones in continuous integration."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
