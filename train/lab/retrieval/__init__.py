"""Retrieval: collections of passages and queries, rankings, and how good they are."""
