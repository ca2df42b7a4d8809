"""Layers: the feed-forward sublayer, one block, and a stack of blocks."""
