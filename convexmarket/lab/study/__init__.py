"""Solver comparison studies: instances, isolated runs, residuals of our own, metrics."""
