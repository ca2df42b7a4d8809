"""Decoding beside greedy search, sampling and beams: drafts that a model verifies."""
