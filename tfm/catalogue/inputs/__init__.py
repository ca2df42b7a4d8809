"""Inputs beside tokens: one file each, named like its tag."""
