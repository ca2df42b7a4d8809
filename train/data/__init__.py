"""From files to batches: sources (examples), tokens (ids, cached), rows of each task, corpus, feed (order, devices)."""
