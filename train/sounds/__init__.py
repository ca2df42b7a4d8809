"""Sounds: files, built-in tones, and the spectrograms that models read."""
