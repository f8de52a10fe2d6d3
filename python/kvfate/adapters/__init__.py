"""Adapters: what other libraries do to a model's cache, as the evictions of a captured run.

    kvfate.adapters.kvpress     presses of NVIDIA's kvpress

Each is imported by its name, as it needs the library that it is about."""
