"""Mixers: how the tokens of a text learn of each other. One file a mixer, named like its tag."""
