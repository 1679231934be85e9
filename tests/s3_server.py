"""An S3 server on the loopback: `python tests/s3_server.py PORT`.

It is moto, with one thing mended: moto 5.2.5 looks whether an object exists and then writes it,
so two threads may both be told that they created it. S3 decides that atomically; here a lock
does. Remove the lock when moto has one.
"""

import sys
import threading

from moto.s3.responses import S3Response
from moto.server import main

_one_write_at_a_time = threading.Lock()
_put_object = S3Response.put_object


def _put_object_alone(response):
    with _one_write_at_a_time:
        return _put_object(response)


S3Response.put_object = _put_object_alone

if __name__ == "__main__":
    main(["--host", "127.0.0.1", "--port", sys.argv[1]])
