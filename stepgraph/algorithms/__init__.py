"""Algorithms as pure functions of tensors: they know nothing of components, graphs or files."""
