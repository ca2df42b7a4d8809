"""Probes of a user's own run: its model, its training and its data. `PROBES` of `train.lab.check.certificate` lists them."""
