"""Text from a decoder: its cache, strategies and constraints, and the compiled loops that generate."""
