"""Kernels of state-space layers: short convolutions and linear recurrences over states in pages."""
