"""Entries of the board of time to quality, docs/records.md."""
