"""Mixers whose queries see fewer keys than there are tokens."""
