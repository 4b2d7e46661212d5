"""Masking secrets on the way out: what counts as one, where it stands, what stands in its place."""
