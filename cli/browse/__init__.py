"""`retold sessions browse`: a picker that fills the screen, and a numbered list where there is none."""
