"""Attention on arrays, its kernels, and the projections of a layer."""
