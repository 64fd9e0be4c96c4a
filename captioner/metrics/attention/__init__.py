"""Tests of attention maps: whether they show what the model used, and where things are."""
