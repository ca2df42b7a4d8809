"""Kinds of models beside encoders, decoders and encoder-decoders."""
