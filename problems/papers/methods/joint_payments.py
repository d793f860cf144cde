"""Payments for the joint problem (A, Theorem III.3). Truthful payments require a global optimum.

The optimal objective V, minimised over the model, is concave in the virtual cost of a seller, with
slope gamma*eps_i. For a uniform prior psi'(c) = 2, so the rent of Eq. (8) is (V(psi(c_hi)) -
V(psi(c_i)))/(2*gamma). At a local optimum, a seller can sell more at a higher report, that is, z <
z' and eps < eps'. The gains of the two misreports, z' for z and z for z', then sum to
(z' - z)(eps' - eps) > 0 for any payments. No payments are truthful in this case.
"""

import numpy as np

import convexmarket as cm


def changed(joint, seller, report):
    """Return the problem with a new report of one seller."""
    sellers = joint.market.sellers.with_report(seller, float(report))
    market = cm.Market(sellers, joint.market.objective, joint.market.constraints)
    return cm.JointMarket(market, joint.X, joint.y, regularization=joint.regularization)


def joint_payment(joint, seller, gamma):
    """Compute the payment of Eq. (8) to one seller with a uniform prior, at a global optimum."""
    top = joint.market.sellers.priors[0].support[1]
    result, highest = (
        cm.allocate_jointly(problem) for problem in (joint, changed(joint, seller, top))
    )
    for each in (result, highest):
        if each.status != "global":
            raise cm.errors.NotSupportedError(
                f"an optimum is {each.status!r}, and payments at a local optimum may not exist; "
                "increase mu or the regularization until cm.joint.convexity_ratio is below 1"
            )
    cost = joint.market.sellers.sensitivities[seller] * result.epsilon[seller]
    return cost + (highest.objective - result.objective) / (2.0 * gamma)


def unavoidable_gain(joint, seller, reports, solve=cm.allocate_jointly):
    """Compute a lower bound, valid for any payments, on the largest gain of a misreport."""
    z = np.asarray(reports, dtype=float)
    sold = np.array([solve(changed(joint, seller, each)).epsilon[seller] for each in z])
    return float(np.max((z[None] - z[:, None]) * (sold[None] - sold[:, None])) / 2.0)
