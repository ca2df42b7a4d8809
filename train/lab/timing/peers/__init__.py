"""Other libraries that do the same work, in processes of their own, and the turns that both sides take."""
