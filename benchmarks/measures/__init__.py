"""The measurements that `speed.py` and `gpu.py` are made of: a section is a module with `measure(bench)`."""
