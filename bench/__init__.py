"""The benchmarks: each figure beside its raw counterpart, in one run."""
