"""
Buy a regression
================

What a treatment costs is learnt from 1,000 people, each under what it granted.
"""

import convexmarket as cm

table, prior = cm.datasets.medical_table(), cm.Uniform(0.02, 0.10)
sold, published = table[:1000], table[1000:]  # the others agreed to be published
public = cm.PublicFeatures({"age": (18, 64), "bmi": (15, 55), "smoker": ["no", "yes"]})

# %%
# A target with a range is a regression. Its regularization follows from public numbers: what is
# bought, how many rows and features there are, and the ranges.
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
print(deal)

# %%
# The standard deviation that the noise adds to a prediction, known before training, and the errors
# on published rows: that of the model, and that of the best constant.
print(f"noise {deal.expected_error:,.0f}", deal.test_errors)
print(f"R squared on the published rows: {deal.model.score(published, published['charges']):.2f}")

# %%
# More privacy is more expensive for the sellers, and better for the model.
for budget in (10, 30, 100):
    few = cm.price(
        people, ask="ask", prior=prior, objective=cm.Spread() + 100 * cm.Noise(), budget=budget
    )
    learner = cm.PersonalizedRidge(features=public, target_range=(1_000, 65_000))
    print(budget, f"{learner.noise_effect(few.offers['epsilon']):,.0f}")
