"""Probes of a user's own run: its model, its training and its data. `train.check.probes` lists them."""
