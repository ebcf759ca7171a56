"""Attention metadata builders that a type checker understands."""
