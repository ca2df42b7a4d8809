"""Vectors of pictures and of captions: --task=contrast of a model with a tower of images."""
