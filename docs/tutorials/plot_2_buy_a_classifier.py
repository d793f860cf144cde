"""
Buy a classifier
================

341 patients are asked what their privacy costs them. A budget of 20 buys a classifier of tumours.
"""

import pandas as pd

import convexmarket as cm

data, prior = cm.datasets.wdbc(), cm.Uniform(0.02, 0.10)  # scaled by public constants
people = pd.DataFrame(data.X_train, columns=data.feature_names)
people["ask"] = prior.sample(len(people), random_state=0)
people["malignant"] = data.y_train

# %%
# mu and sigma come from what is known of the learner; gamma is such that expected payments meet the
# budget. Nobody's row counts more than twice the average.
deal = cm.buy(
    people,
    ask="ask",
    target="malignant",
    prior=prior,
    learner=cm.PrivateLogisticRegression(0.05),
    budget=20,
    constraints=[cm.Cap(2)],
)
print(deal)

# %%
# What each sold, and for how much:
deal.offers.head()

# %%
# The model is trained under exactly that, and predicts like any of scikit-learn:
test = pd.DataFrame(data.X_test, columns=data.feature_names)
deal.model.score(test, data.y_test)

# %%
# What of it is spent:
deal.account.to_frame().head()
