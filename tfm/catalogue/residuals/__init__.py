"""Residual schemes beside pre- and post-norm: one file each, named like its tag."""
