"""Wire dialects: HTTP in, use case, HTTP out."""
