"""Mixers whose weights do not depend on the tokens."""
