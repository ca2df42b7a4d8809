"""What people see of a run: lines and tables on stderr, metrics, plots."""
