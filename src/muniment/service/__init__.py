"""Use cases: one function per thing a caller can ask for."""
