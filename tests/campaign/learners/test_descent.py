"""Compare the errors of noisy descent and of objective perturbation for equal purchases."""

import numpy as np
import pytest

import convexmarket as cm
from convexmarket import datasets
from convexmarket.privacy import Simulation
from tests.learners.builders import noisy_descent

NoisyDescent = noisy_descent()
DRAWS = 40
LABELS = (-1.0, 1.0)
LEARNERS = {
    "0.01": cm.PrivateLogisticRegression(0.01, classes=LABELS),
    "0.1": cm.PrivateLogisticRegression(0.1, classes=LABELS),
    "linear": NoisyDescent(classes=LABELS),
    "hidden": NoisyDescent(8, classes=LABELS),
}


@pytest.mark.parametrize("gamma", [0.0003, 0.003, 0.03])
def test_the_table_of_the_theory_page_is_reproduced(gamma):
    """Print the table of docs/theory/noisy-descent.md: errors on 228 rows, averaged over noise."""
    data = datasets.wdbc()
    X, y = np.vstack([data.X_validation, data.X_test]), np.r_[data.y_validation, data.y_test]
    prior = cm.Uniform(np.exp(-4), 5 * np.exp(-4))
    reports = prior.sample(data.y_train.size, np.random.default_rng(0))
    market = cm.Market.standard(cm.Sellers(reports, prior), mu=1, sigma=10, gamma=gamma)
    sold = cm.allocate(market).epsilon
    error = {}
    for name, learner in LEARNERS.items():
        fits = (
            learner.fit(data.X_train, data.y_train, epsilon=sold, random_state=Simulation(seed))
            for seed in range(DRAWS)
        )
        error[name] = np.mean([np.mean(model.predict(X) != y) for model in fits])
    print(f"gamma {gamma}, largest epsilon {sold.max():.2f}:", error)
    assert error["linear"] < error["0.01"]
    assert error["linear"] < 1.4 * error["0.1"]
    assert error["hidden"] < error["0.1"]
