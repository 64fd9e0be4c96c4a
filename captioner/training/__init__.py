"""Training: configuration, data, objectives, the loop.

Importing the package imports its objectives, so that whatever reads a recipe or a checkpoint knows the
options of all of them (`config.train_options.OBJECTIVE_OPTIONS`).
"""

from captioner.training import objectives as objectives
