"""
Buy a regression
================

In this tutorial, a model of treatment costs is learned from the rows of 1,000 people. Each person
sells an individual epsilon.
"""

import matplotlib.pyplot as plt

import convexmarket as cm

table, prior = cm.datasets.medical_table(), cm.Uniform(0.02, 0.10)
sold, published = table[:1000], table[1000:]  # the remaining people agreed to publication
public = cm.PublicFeatures({"age": (18, 64), "bmi": (15, 55), "smoker": ["no", "yes"]})

# %%
# The parameter ``target_range`` selects a regression. The regularization depends on public numbers
# only: the epsilons bought, the numbers of rows and features, and the ranges. The regularization
# does not depend on the rows.
people = sold.assign(ask=prior.sample(len(sold), random_state=0))
deal = cm.buy(
    people,
    ask="ask",
    target="charges",
    prior=prior,
    features=public,
    target_range=(1_000, 65_000),
    budget=100,
    test=published,
)
print(f"standard deviation of the noise in a prediction: {deal.expected_error:,.0f} dollars")

# %%
# The standard deviation is computed before training. After training, ``test_errors`` contains the
# errors of the model and of the best constant prediction on the published rows:
print({name: f"{error:,.0f} dollars" for name, error in deal.test_errors.items()})

# %%
# With a larger budget, the buyer purchases more privacy and obtains a better model. A larger budget
# decreases the noise, but not the other errors of the model:
budgets, noise = (3, 10, 30, 100), []
for budget in budgets:
    offers = cm.price(
        people, ask="ask", prior=prior, objective=cm.Spread() + 100 * cm.Noise(), budget=budget
    ).offers
    learner = cm.PersonalizedRidge(features=public, target_range=(1_000, 65_000))
    noise.append(learner.noise_effect(offers["epsilon"]))
fig, ax = plt.subplots()
ax.loglog(budgets, noise, marker="o")
ax.set(xlabel="budget", ylabel="noise in a prediction (dollars)")
fig.tight_layout()
