"""Steps whose values are not finite: kept as black boxes, and run again with checks on."""
