"""Run folders and what they hold: configuration, processor, checkpoints; Hugging Face folders in their place."""
