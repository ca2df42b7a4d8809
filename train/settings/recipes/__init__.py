"""Recipes: flags that presets of several tasks share, by dotted name."""
