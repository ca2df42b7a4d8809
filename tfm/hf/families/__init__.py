"""The families of Hugging Face folders, by what they are."""
