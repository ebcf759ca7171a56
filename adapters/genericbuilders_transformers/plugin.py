"""What the entry point names. Importing it imports nothing heavy."""

from __future__ import annotations

from genericbuilders.plugins import Plugin
from genericbuilders_transformers.loader import TransformersLoader

__all__ = ["PLUGIN"]

PLUGIN = Plugin("transformers", model_loaders=(TransformersLoader(),))
