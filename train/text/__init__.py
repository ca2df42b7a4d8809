"""Text as tokens: tokenizers that are trained here or read from files."""
