"""Options of mixers beside softmax attention, a file a family."""
