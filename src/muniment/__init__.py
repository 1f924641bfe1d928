"""Governed, versioned memory and context for AI agents."""
