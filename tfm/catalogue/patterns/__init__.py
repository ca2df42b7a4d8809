"""Patterns of softmax attention beside full and local: one file each, named like its tag."""
