"""Options of positions beside `learned`, `sinusoidal` and `rotary`, and the scalings of the latter."""
