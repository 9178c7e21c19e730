"""Exit code 0 if the worker in this container says that it is ready.

The standard library alone: it runs every few seconds.
"""

import http.client
import os
import sys

connection = http.client.HTTPConnection("127.0.0.1", int(os.environ.get("FENCEPOST_HTTP_PORT", "8600")), timeout=4)
connection.request("GET", "/readyz")
answer = connection.getresponse()
print(answer.status, answer.read(2000).decode("utf-8", "replace"))
sys.exit(0 if answer.status == 200 else 1)
