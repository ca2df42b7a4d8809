"""The training loop's parts: the job and its step, optimizers, hooks, evaluation, start-up."""
