"""Masked language modelling: hide some of the tokens and predict them from the rest."""
