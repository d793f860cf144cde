"""Tables in and out, public preprocessing, and the data sets that come with the package."""

from convexmarket.data import datasets
from convexmarket.data.features import PublicFeatures

__all__ = ["PublicFeatures", "datasets"]
