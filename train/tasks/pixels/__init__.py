"""Pictures, pixel by pixel."""
