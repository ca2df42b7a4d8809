"""The tasks: what a model is trained for, each in a folder of its own."""
