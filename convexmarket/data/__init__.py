"""Read and write tables, preprocess them by public rules, and load data sets."""

from convexmarket.data import datasets
from convexmarket.data.features import PublicFeatures

__all__ = ["PublicFeatures", "datasets"]
