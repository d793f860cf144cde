"""Problem files, which describe experiments in TOML."""

from convexmarket.studies.files.file_tables import ProblemFile
from convexmarket.studies.files.loading import json_schema, load_file, parse_file
from convexmarket.studies.files.online_file import OnlineFile

__all__ = ["OnlineFile", "ProblemFile", "json_schema", "load_file", "parse_file"]
