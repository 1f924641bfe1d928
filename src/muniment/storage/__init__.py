"""The port to what remembers, and its three adapters."""
