"""The `muniment` command."""
