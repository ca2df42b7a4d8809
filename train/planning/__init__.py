"""The planner: memory, operations and traffic of a run, before it starts."""
