"""Problem files: calls of this package, written as TOML."""

from convexmarket.studies.files.base import ProblemFile
from convexmarket.studies.files.loading import json_schema, load_file, parse_file

__all__ = ["ProblemFile", "json_schema", "load_file", "parse_file"]
