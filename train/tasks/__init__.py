"""The tasks: what a model is trained for, each in a file of its own."""
