"""The raw counterparts: bare Starlette applications that do the same work without our layers."""
