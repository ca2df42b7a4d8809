"""Fair comparisons of runs: the same data in the same order, the same seeds, the same budget, paired differences."""
