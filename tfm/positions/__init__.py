"""Positions: how a model knows where a token stands. One file a scheme, named like its tag."""
