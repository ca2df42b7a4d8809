"""Mixers beside softmax attention: one file each, named like its tag."""
