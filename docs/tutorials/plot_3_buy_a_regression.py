"""
Buy a regression
================

What a treatment costs is learnt from 1,000 people, each under what it granted.
"""

import convexmarket as cm

table, prior = cm.datasets.medical_table(), cm.Uniform(0.02, 0.10)
sold, published = table[:1000], table[1000:]  # the others agreed to be published
public = cm.PublicFeatures({"age": (18, 64), "bmi": (15, 55), "smoker": ["no", "yes"]})


def ridge(regularization):
    """Return a learner that is told what is public of the columns and of the target."""
    return cm.PersonalizedRidge(regularization, features=public, target_range=(1_000, 65_000))


# %%
# The regularization decides most. It may not be chosen on rows that are sold; published ones tell
# the loss to be expected over the noise, in closed form.
alike = published.sample(len(sold), replace=True, random_state=0, ignore_index=True)


def loss(regularization):
    """Return the expected loss on published rows."""
    rows = (alike, alike["charges"], published, published["charges"])
    return cm.learners.expected_loss(ridge(regularization), *rows, epsilon=1.0).mean


losses = {value: loss(value) for value in (0.1, 0.3, 1.0, 3.0)}
{value: f"{expected**0.5:,.0f}" for value, expected in losses.items()}  # in the unit of charges

# %%
# The purchase with the best of them:
people = sold.assign(ask=prior.sample(len(sold), random_state=0))
deal = cm.buy(
    people,
    ask="ask",
    target="charges",
    prior=prior,
    learner=ridge(min(losses, key=losses.get)),
    budget=100,
)
print(deal)
print(f"R squared on the published rows: {deal.model.score(published, published['charges']):.2f}")
