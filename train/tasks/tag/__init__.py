"""A label for every word."""
