"""
Buy a regression
================

A model of treatment costs is learned from 1,000 people, with a different epsilon for each.
"""

import matplotlib.pyplot as plt

import convexmarket as cm

table, prior = cm.datasets.medical_table(), cm.Uniform(0.02, 0.10)
sold, published = table[:1000], table[1000:]  # the others agreed to publication
public = cm.PublicFeatures({"age": (18, 64), "bmi": (15, 55), "smoker": ["no", "yes"]})

# %%
# ``target_range=`` makes it a regression. The regularization depends on public numbers: the
# epsilons bought, the numbers of rows and features, and the ranges. No row is used to choose it.
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
# This number is computed before training. After training, the errors of the model and of the best
# constant prediction are measured on the published rows:
print({name: f"{error:,.0f} dollars" for name, error in deal.test_errors.items()})

# %%
# More privacy costs more money and gives a better model. The noise decreases with the budget, but
# the other errors of the model do not:
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
