"""The experiments of the papers on the public API of convexmarket.

``python -m problems.papers`` runs all of them, ``python -m problems.papers limits`` one. An
experiment is a module, or a class of a module that holds several: ``compute`` returns tables,
``claims`` compares them with what the paper says, and ``report`` writes them down. A and B are the
two papers on mechanism design, R is the one on personalised privacy for ridge regression, and K the
one on private kernel predictions.
"""
