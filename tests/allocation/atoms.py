"""Define convex functions of a vector of 12 or more entries by CVXPY atoms and compositions."""

import cvxpy as cp
import numpy as np


def drawn(v, rows):
    """Return a fixed random matrix with ``rows`` rows and entries of both signs."""
    return np.random.default_rng(v.size + rows).normal(size=(rows, v.size)) / np.sqrt(v.size)


def off(v):
    """Subtract targets of order one from a vector. The differences have both signs."""
    return v - np.linspace(0.5, 1.5, v.size)


def table(v):
    """Return the first twelve entries as a 3 x 4 matrix."""
    return cp.reshape(off(v)[:12], (3, 4), order="F")


def symmetric(v):
    """Return a symmetric matrix expression whose symmetry CVXPY cannot infer."""
    data = drawn(v, 9).reshape(3, 3, v.size)
    data = (data + data.swapaxes(0, 1)).reshape(9, v.size, order="F")
    return cp.reshape(data @ v, (3, 3), order="F")


def ramp(size):
    """Return evenly spaced positive weights, one for each entry."""
    return np.linspace(0.2, 1.0, size)


#: Convex functions with kinks, by name.
KINKS = {
    "abs": lambda v: ramp(v.size) @ cp.abs(off(v)),
    "abs of affine": lambda v: cp.sum(cp.abs(drawn(v, 5) @ v - 0.3)),
    "abs of squares": lambda v: cp.sum(cp.abs(cp.square(off(v)))),
    "max": lambda v: cp.max(off(v)),
    "max by row": lambda v: ramp(3) @ cp.max(table(v), axis=1),
    "max by column": lambda v: cp.sum(cp.max(table(v), axis=0, keepdims=True)),
    "max of squares": lambda v: cp.max(cp.square(off(v))),
    "piecewise linear": lambda v: cp.max(drawn(v, 6) @ v + np.linspace(0, 0.5, 6)),
    "max of norms": lambda v: cp.max(cp.norm(table(v), axis=0)),
    "min": lambda v: -cp.min(v),
    "min by column": lambda v: -ramp(4) @ cp.min(table(v), axis=0),
    "min of roots": lambda v: -cp.min(cp.sqrt(v + 0.1)),
    "ptp": lambda v: cp.ptp(v),
    "pos": lambda v: ramp(v.size) @ cp.pos(off(v)),
    "neg": lambda v: ramp(v.size) @ cp.neg(off(v)),
    "scalene": lambda v: cp.sum(cp.scalene(off(v), 2.0, 0.5)),
    "maximum of several": lambda v: cp.sum(cp.maximum(off(v), 0.2 - 2 * off(v), ramp(v.size), 0.1)),
    "maximum with a scalar": lambda v: cp.sum(cp.maximum(off(v), cp.sum(v[:3]) / 3 - 0.5)),
    "maximum with a row": lambda v: cp.sum(cp.maximum(table(v), table(v)[:1] + 0.2)),
    "maximum of expressions": lambda v: cp.maximum(cp.sum_largest(v, 2) / 2, cp.norm(v) / 2, 0.5),
    "minimum": lambda v: -ramp(v.size) @ cp.minimum(off(v), 0.1, 0.5 - 2 * off(v)),
    "sum_largest": lambda v: cp.sum_largest(v, 3),
    "sum_largest, a fraction": lambda v: cp.sum_largest(off(v), 2.5),
    "sum_largest of squares": lambda v: cp.sum_largest(cp.square(off(v)), 2),
    "sum_largest of a matrix": lambda v: cp.sum_largest(table(v), 4),
    "sum_smallest": lambda v: -cp.sum_smallest(v, 4),
    "cvar": lambda v: cp.cvar(v, 0.7),
    "norm1": lambda v: cp.norm1(off(v)),
    "norm1 by column": lambda v: ramp(4) @ cp.norm1(table(v), axis=0),
    "norm_inf": lambda v: cp.norm_inf(off(v)),
    "norm_inf by row": lambda v: ramp(3) @ cp.norm_inf(table(v), axis=1),
    "norm_inf of moments": lambda v: cp.norm_inf(drawn(v, 3) @ v - 0.2),
    "norm": lambda v: cp.norm(v - 1),
    "norm of positive parts": lambda v: cp.norm(cp.pos(off(v))),
    "norm by column": lambda v: ramp(4) @ cp.norm(table(v), axis=0),
    "3-norm": lambda v: cp.pnorm(v - 1, 3),
    "1.5-norm": lambda v: cp.pnorm(off(v), 1.5),
    "pi-norm": lambda v: cp.pnorm(off(v), np.pi),
    "mixed norm": lambda v: cp.mixed_norm(table(v), 2, 3),
    "tv": lambda v: cp.tv(v),
    "tv of a matrix": lambda v: cp.tv(table(v)),
    "dotsort": lambda v: cp.dotsort(off(v), ramp(v.size)),
    "dotsort with few weights": lambda v: cp.dotsort(v, [0.5, 3.0, 1.0]),
    "dotsort of both signs": lambda v: cp.dotsort(off(v), [0.5, -2.0, 1.0, -0.1]),
    "dotsort of a matrix": lambda v: cp.dotsort(table(v), np.arange(12.0).reshape(3, 4) / 5),
    "lambda_max": lambda v: cp.lambda_max(symmetric(v)),
    "lambda_max of a diagonal": lambda v: cp.lambda_max(cp.diag(off(v)[:4]) + 0.1),
    "lambda_min": lambda v: -cp.lambda_min(symmetric(v)),
    "lambda_sum_largest": lambda v: cp.lambda_sum_largest(symmetric(v), 2),
    "sigma_max": lambda v: cp.sigma_max(table(v)),
    "nuclear norm": lambda v: cp.normNuc(table(v)),
    "cummax": lambda v: ramp(v.size) @ cp.cummax(off(v)),
    "cummax by row": lambda v: cp.sum(cp.multiply(ramp(12).reshape(3, 4), cp.cummax(table(v), 1))),
    "a sum of kinks": lambda v: cp.norm(v) + 2 * cp.max(v) + cp.norm1(off(v)) / 3,
}

#: Smooth convex functions, and compositions of atoms with kinks.
OTHERS = {
    "sum_squares": lambda v: cp.sum_squares(off(v)),
    "sum_squares of positive parts": lambda v: cp.sum_squares(cp.pos(off(v))),
    "quad_over_lin": lambda v: cp.quad_over_lin(drawn(v, 5) @ v, 0.4),
    "quad_over_lin of both": lambda v: cp.quad_over_lin(off(v), 1 + cp.sum(v)),
    "quad_form": lambda v: cp.quad_form(off(v), np.eye(v.size) + drawn(v, 5).T @ drawn(v, 5)),
    "matrix_frac": lambda v: cp.matrix_frac(off(v), np.diag(1 + ramp(v.size))),
    "huber": lambda v: cp.sum(cp.huber(off(v), 0.3)),
    "entropy": lambda v: -cp.sum(cp.entr(v)),
    "entropy with zeros": lambda v: -cp.sum(cp.entr(cp.multiply(np.arange(v.size) % 2, v))),
    "kl_div": lambda v: cp.sum(cp.kl_div(v, ramp(v.size))),
    "exp": lambda v: cp.sum(cp.exp(off(v))),
    "log_sum_exp": lambda v: cp.log_sum_exp(2 * v),
    "logistic": lambda v: cp.sum(cp.logistic(3 * off(v))),
    "log": lambda v: -ramp(v.size) @ cp.log(v + 0.1),
    "inv_pos": lambda v: cp.inv_pos(cp.sum(v) / v.size + 0.1),
    "square root": lambda v: -cp.sum(cp.sqrt(v + 0.1)),
    "power": lambda v: cp.sum(cp.power(v, 2.5)),
    "geo_mean": lambda v: -cp.geo_mean(v[:4] + 0.1),
    "harmonic_mean": lambda v: -cp.harmonic_mean(v[:4] + 0.1),
    "tr_inv": lambda v: cp.tr_inv(cp.diag(v[:3] + 0.3)),
    "log_det": lambda v: -cp.log_det(cp.diag(v[:3] + 0.3)),
    "log_sum_exp by row": lambda v: ramp(3) @ cp.log_sum_exp(table(v), axis=1),
    "sum_squares by column": lambda v: ramp(4) @ cp.sum_squares(table(v), axis=0),
    "cubes of positive parts": lambda v: cp.sum(cp.power(cp.pos(off(v)), 3)),
    "inverse roots": lambda v: ramp(v.size) @ cp.power(v + 0.2, -0.5),
    "weighted geo_mean": lambda v: -cp.geo_mean(v[:3] + 0.1, [1, 2, 3]),
    "rel_entr": lambda v: cp.sum(cp.rel_entr(v[:6] + 0.1, v[6:12] + 0.2)),
    "rel_entr with a number": lambda v: cp.sum(cp.rel_entr(v + 0.1, 0.2 + cp.sum(v[:3]))),
    "log1p": lambda v: -cp.sum(cp.log1p(v)),
    "xexp": lambda v: cp.sum(cp.xexp(v / 4)),
    "inv_prod": lambda v: cp.inv_prod(v[:3] + 0.5),
    "max of a convolution": lambda v: cp.max(cp.convolve([1.0, -2.0, 0.5], off(v))),
    "norm of a kronecker product": lambda v: cp.sum(cp.norm(cp.kron(np.eye(2), table(v)), axis=1)),
    "max of cumulated sums": lambda v: cp.max(cp.cumsum(table(v), axis=1)),
    "max of upper entries": lambda v: cp.max(cp.upper_tri(symmetric(v))),
    "square of a positive part": lambda v: cp.square(cp.pos(cp.sum(v) - v.size)),
}
