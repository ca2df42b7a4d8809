"""Answers to questions, which are places in a passage."""
