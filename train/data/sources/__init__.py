"""Where examples come from: files, TensorFlow datasets, built-in data; and the split for validation."""
