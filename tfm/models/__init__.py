"""Models: encoders, decoders, heads and losses."""
