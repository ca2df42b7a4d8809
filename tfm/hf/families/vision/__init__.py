"""Encoders of images: one file for each model_type, or for a few that share most of it."""
