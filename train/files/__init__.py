"""Files: the cache, the lines that a command writes, and silence for libraries that print."""
