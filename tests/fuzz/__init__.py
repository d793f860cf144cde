"""Fuzzing: inputs nobody would write, and what has to hold whatever they are.

``python -m tests.fuzz --examples 100000 --seed 0`` runs the whole campaign; the tests in this
folder run a small, fixed part of it, and replay everything that was ever found.
"""
