"""Released models as files: what may be published, checked before anything is built from it."""

from convexmarket.learners.saved.document import Document, model_schema
from convexmarket.learners.saved.kinds import Kind, register
from convexmarket.learners.saved.models import load_model, save_model, saved_model

__all__ = [
    "Document",
    "Kind",
    "load_model",
    "model_schema",
    "register",
    "save_model",
    "saved_model",
]
