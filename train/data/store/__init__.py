"""Stores of tokens, larger than memory: shards made once by `train.prepare`, of which any row is read by itself."""
