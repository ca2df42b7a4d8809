"""Metrics of tasks, by their official rules."""
