"""What position schemes share: vectors of distances, and where vectors of absolute positions go."""
