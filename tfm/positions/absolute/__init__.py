"""Positions that have a vector each."""
