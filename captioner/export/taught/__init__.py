"""Adds what a model was taught to the graphs of the bundle that it started from.

Their nodes, their weights and the rounding of INT8 stay as they are. For a photo that is not like a corrected
one, `TaughtPhotos` adds 0 to the grid, `RareWords` adds 0 to scores, and new words are impossible:
the new bundle computes the same as before, in both precisions.
"""
