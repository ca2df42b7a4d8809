"""A stopwatch: steps, passes and peers, timed in turns (`python -m train.bench`)."""
