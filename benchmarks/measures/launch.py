"""Run a command and print, as JSON, its time, the most memory that it had, its status and its output.

A process of its own and small: a process counts the memory of the one that it was forked from as its own."""

import json
import os
import subprocess
import sys
import time

started = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
assert process.stdout is not None
output = process.stdout.read().decode(errors="replace")
_, status, usage = os.wait4(process.pid, 0)
seconds = time.perf_counter() - started
print(json.dumps([seconds, usage.ru_maxrss / 1024, os.waitstatus_to_exitcode(status), output]))
