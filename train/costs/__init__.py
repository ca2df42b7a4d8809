"""The costs of a run: floating-point operations, memory, traffic and time, before and while it runs."""
