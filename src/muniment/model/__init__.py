"""Pure values and rules: what Muniment decides. No input or output."""
