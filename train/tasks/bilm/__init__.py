"""Language modelling in both directions."""
