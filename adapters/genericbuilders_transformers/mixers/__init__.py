"""Modules that stand in for transformers' state-space mixers: same weights, states in this library's caches."""
