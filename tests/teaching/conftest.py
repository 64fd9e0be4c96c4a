"""A data set that is learnt in seconds."""

from support.one_thread import one_thread, seeded  # noqa: F401
from support.squares_data import cache, data  # noqa: F401
