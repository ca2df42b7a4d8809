"""Decoding with a trained model: options, decoder, writers, and the adapter of lm-evaluation-harness."""
