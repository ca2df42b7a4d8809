"""From files to batches: sources (text), tokens (ids in a memory-mapped cache), packing (rows), feed (order and devices)."""
