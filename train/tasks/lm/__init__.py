"""Language modelling from left to right."""
