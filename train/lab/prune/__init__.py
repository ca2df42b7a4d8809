"""Pruning: which heads a model does not need, and run folders without them."""
