"""Probes of a user's own run: its model, its training and its data. `PROBES` in `certificate` lists them."""
