"""The experiments of the papers, on the public API. ``python -m problems.papers`` runs them.

``compute`` returns tables, ``claims`` compares them with the paper, and ``report`` writes a report.
A and B are the papers on mechanism design, R on ridge regression, K on private kernel predictions.
"""
