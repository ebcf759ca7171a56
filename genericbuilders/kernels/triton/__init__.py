"""Attention in Triton, for CUDA devices: nothing here imports Triton before a kernel is made."""
