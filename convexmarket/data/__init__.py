"""Reading and writing tables, public preprocessing, and the data sets of the package."""

from convexmarket.data import datasets
from convexmarket.data.features import PublicFeatures

__all__ = ["PublicFeatures", "datasets"]
