"""What a user sees: tables, progress, pictures, trackers."""
