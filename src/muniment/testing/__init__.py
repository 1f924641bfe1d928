"""What a storage must pass, shipped so that others can test one."""
