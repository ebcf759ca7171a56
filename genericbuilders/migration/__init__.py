"""Rewrites existing builders: to the base with two type parameters, or to the merged widened base."""
