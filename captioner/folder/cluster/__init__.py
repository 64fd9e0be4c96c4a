"""Batches on a cluster, over Ray."""
