"""Sweeps: grids and samples over any field, resumable, on cores or a cluster."""
