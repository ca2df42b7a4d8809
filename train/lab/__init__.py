"""Tools: nothing imports them. `python -m train.NAME` runs each."""
