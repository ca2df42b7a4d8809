"""One of several continuations of a text."""
