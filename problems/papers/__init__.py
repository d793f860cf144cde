"""Experiments of the papers with the public API. ``python -m problems.papers`` runs them.

``compute`` returns tables, ``claims`` compares them with the paper, and ``report`` writes a report.
A and B are papers on mechanism design, R is on ridge regression and K on kernel predictions.
"""
