"""Built-in data written by grammars: opinions to classify, questions about paragraphs, English sentences in German."""
