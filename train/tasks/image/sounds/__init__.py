"""Classes of sounds: `--task=image` of a model that reads frames."""
