"""The benchmarks of design/product.md: each figure beside its raw counterpart, in one run."""
