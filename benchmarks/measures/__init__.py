"""The measurements that `speed.py` is made of: a section is a module with `measure(bench)`."""
