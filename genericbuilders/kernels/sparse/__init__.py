"""Kernels of sparse attention: the selection of each token's best keys, and attention over what was selected."""
