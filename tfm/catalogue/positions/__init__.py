"""Schemes of positions beside learned, sinusoidal and rotary: one file each, named like its tag."""
