"""Mixers whose scores are products of features: sums over the text take the place of its keys."""
