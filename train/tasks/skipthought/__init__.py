"""The vector of a sentence predicts the sentences before and after it."""
