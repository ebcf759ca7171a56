"""Kernels over a paged cache: the reference that defines them, a portable form and a native one for CPUs."""
