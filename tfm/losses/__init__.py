"""Losses: over a vocabulary, over a sample of it, and over the rows of a batch that are near or far."""
