"""Writing into stores of other programs."""
