"""Kernels of attention, and the choice among them."""
