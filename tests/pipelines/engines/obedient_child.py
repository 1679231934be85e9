"""A child for test_child_process.py: does what the frames say, and prints on stdout as well."""

import os
import signal
import subprocess
import sys
import tempfile
import time

from pipelines.engines.child_side import leave, take_pipes


def main():
    pipes = take_pipes(int(sys.argv[1]))
    print("this is a library talking on stdout", flush=True)
    pipes.send(("pid", os.getpid()))
    while not pipes.inbox.is_closed:
        for kind, *rest in pipes.inbox.read(is_blocking=True):
            if kind == "exit":
                print("last words [1, 2, 3, 4, 5, 6]", file=sys.stderr, flush=True)
                os._exit(rest[0])
            elif kind == "start a child":
                started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
                pipes.send(("started", started.pid))
            elif kind == "print":
                print(*rest, flush=True)
            elif kind == "make a temporary file":
                pipes.send(("made", tempfile.mkstemp()[1]))
            elif kind == "be deaf":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                pipes.send(("deaf",))
                time.sleep(600)
            else:
                pipes.send((kind, *rest))
    leave(0)


if __name__ == "__main__":
    main()
