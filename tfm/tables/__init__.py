"""The variants of every slot by the tag of their options. No other part of the core imports the catalogue."""
