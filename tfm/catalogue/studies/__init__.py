"""Studies of a model: where it stops being finite, which heads it needs, what its positions do."""
