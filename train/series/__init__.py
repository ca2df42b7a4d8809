"""Series of numbers: files, built-in ones, and windows of them."""
