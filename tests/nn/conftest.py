from support.one_thread import one_thread, seeded  # noqa: F401
