"""Quantised caches: vectors as bytes, their place in a paged cache, and attention over them."""
