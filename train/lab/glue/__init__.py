"""Suites of tasks for which a pre-trained model is fine-tuned: their files, metrics, runs, tables and submissions."""
