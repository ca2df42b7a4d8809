"""Images: where they come from, how they are decoded, augmented and drawn, and the rows that they become."""
