"""Two operations for mgx: `squareplus` and `moving_average`."""
