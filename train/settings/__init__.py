"""What a run is, and how flags, presets and saved runs describe it."""
