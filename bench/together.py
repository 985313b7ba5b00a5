# SPDX-License-Identifier: Apache-2.0
"""Starts several programs at once and waits for all of them: together.py JSON, a list of [words,
variables of the environment]. Prints as JSON {"ended": [exit code, stdout, stderr] of each,
"most_resident": bytes that one of them had}. When one fails, the others are stopped, since they may
wait for it."""
import json
import os
import resource
import subprocess
import sys
import tempfile
import time


def start(words, variables, folder, number):
    paths = [f"{folder}/{number}.{name}" for name in ("out", "err")]
    with open(paths[0], "w") as out, open(paths[1], "w") as err:
        return subprocess.Popen(words, env=os.environ | variables, stdout=out, stderr=err), paths


def wait(running):
    """Until all have ended; the first that fails ends the rest."""
    while any(process.poll() is None for process, _ in running):
        if any(process.poll() for process, _ in running):
            for process, _ in running:
                process.kill()
        time.sleep(0.05)


def read(path):
    with open(path) as file:
        return file.read()


def main():
    with tempfile.TemporaryDirectory() as folder:
        running = [start(words, variables, folder, number)
                   for number, (words, variables) in enumerate(json.loads(sys.argv[1]))]
        wait(running)
        resident = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        print(json.dumps(dict(most_resident=resident, ended=[
            [process.returncode, *map(read, paths)] for process, paths in running])))


main()
