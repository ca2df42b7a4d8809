"""Built-in data written by grammars: opinions to classify, and English sentences with German translations."""
