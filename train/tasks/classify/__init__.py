"""Classes or a value for a text or a pair of texts."""
