"""What tasks predict for train.predict: answers, blanks, scores of texts and tags. One file a kind."""
