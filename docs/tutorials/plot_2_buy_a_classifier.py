"""
Buy a classifier
================

In this tutorial, 341 patients report their privacy costs. A buyer with a budget of 20 purchases
privacy from these patients and trains a classifier of tumours.
"""

import matplotlib.pyplot as plt
import pandas as pd

import convexmarket as cm

data, prior = cm.datasets.wdbc(), cm.Uniform(0.02, 0.10)  # scaled by public constants
people = pd.DataFrame(data.X_train, columns=data.feature_names)
people["ask"] = prior.sample(len(people), random_state=0)
people["malignant"] = data.y_train

# %%
# The error bound of the learner determines mu and sigma, the weights of the spread and of the
# noise. gamma, the weight of the payments, is chosen such that the *expected* payments over the
# prior are 20. Because gamma does not depend on the reports, the actual payments to these 341
# people, 20.64, differ slightly from the budget. ``Cap(2)`` limits each weight to twice the
# average.
deal = cm.buy(
    people,
    ask="ask",
    target="malignant",
    prior=prior,
    learner=cm.PrivateLogisticRegression(0.05),
    budget=20,
    constraints=[cm.Cap(2)],
)
print(f"payments: {deal.offers['payment'].sum():.2f}")

# %%
# Each offer lists the epsilon sold, the payment, and the surplus of the seller:
deal.offers.head().round(3)

# %%
# The model is trained with exactly these epsilons. It is a scikit-learn classifier:
test = pd.DataFrame(data.X_test, columns=data.feature_names)
print(f"accuracy on test rows: {deal.model.score(test, data.y_test):.2f}")

# %%
# The account lists the epsilon that each person sold and the epsilon that the model used. The model
# uses almost all of the epsilon sold:
deal.account.to_frame().head().round(4)

# %%
# Sellers with low asks sell the most privacy. Sellers with asks above 0.075 sell nothing and have
# no privacy loss:
fig, ax = plt.subplots()
ax.scatter(deal.offers["ask"], deal.offers["epsilon"], s=8)
ax.set(xlabel="ask per unit of epsilon", ylabel="epsilon sold")
fig.tight_layout()
