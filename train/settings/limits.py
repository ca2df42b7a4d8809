"""The ends of ranges that several options share, and why."""

# Steps of a run.
MAX_STEPS = 2**31 - 1
STEPS = "steps are counted with 32 bits"

# Rows of a batch, and tokens of a row.
MAX_ROWS = 1 << 24

# Seeds are int32 to jax.
MAX_SEED = 2**31 - 1

# Texts of a beam search.
MAX_BEAMS = 4096
