"""Problem files: one TOML file per experiment, one schema, errors that name the key.

A problem file is data, never code. Its ``kind`` says which experiment it describes; each kind has
a model of its own, and everything else about the file (syntax, overrides, errors, the published
schema) is shared. Every model forbids keys that it does not know, so that a misspelt key is an
error and not a default in disguise.
"""
