"""Vectors of texts, by contrast with all other texts of a batch."""
