"""Governed, versioned memory and context for AI agents."""

__version__ = "0.1.0"
