"""Starts a varvefs for a test or benchmark and talks to its control socket (varvefs(8))."""

import http.client
import io
import json
import os
import signal
import socket
import subprocess
import time

FDS_MAX = 64
START_TIMEOUT_S = 20


class ControlError(Exception):
    """An answer with an error status; the text is the server's."""


class Connection:
    """One connection to the control socket. What was attached over it lives as long as it."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))

    def call(self, method, target, body=None):
        """Returns the JSON of the answer and the descriptors that came with it."""
        payload = b"" if body is None else json.dumps(body).encode()
        self.socket.sendall(
            f"{method} {target} HTTP/1.1\r\nHost: varvefs\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
        received, descriptors = b"", []
        while True:
            data, more, _, _ = socket.recv_fds(self.socket, 1 << 16, FDS_MAX)
            received += data
            descriptors += more
            answer = parse(received)
            if answer is not None:
                break
            if not data:
                raise ControlError(f"{target}: the connection ended after {received!r}")
        status, document = answer
        if status >= 400:
            raise ControlError(f"{method} {target}: {status}: {document}")
        return document, descriptors

    def close(self):
        self.socket.close()


def parse(received):
    """(status, JSON) of a whole HTTP answer, or None when some of it is missing."""
    head, separator, body = received.partition(b"\r\n\r\n")
    if not separator:
        return None
    status = int(head.split(None, 2)[1])
    headers = http.client.parse_headers(io.BytesIO(head.partition(b"\r\n")[2] + b"\r\n\r\n"))
    if len(body) < int(headers.get("Content-Length", 0)):
        return None
    return status, json.loads(body) if body.strip() else None


class Varvefs:
    """A running varvefs with its own run folder; ends it when the `with` block ends."""

    def __init__(self, program, run_dir, *arguments):
        self.run_dir = run_dir
        os.makedirs(run_dir)
        self.log = open(os.path.join(run_dir, "log"), "wb")
        self.child = subprocess.Popen([program, "--foreground", "--run-dir", run_dir, *arguments],
                                      stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.connections = []

    def __enter__(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.status = self.connect().call("GET", "/v1/status")[0]
                return self
            except (FileNotFoundError, ConnectionRefusedError):
                if self.child.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise RuntimeError(f"varvefs did not start: {self.log_text()}") from None
                time.sleep(0.01)

    def __exit__(self, *_):
        self.stop()

    def connect(self):
        self.connections.append(Connection(os.path.join(self.run_dir, "control.sock")))
        return self.connections[-1]

    def log_text(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as log:
            return log.read()

    def resident_kib(self):
        """The process's private memory (RssAnon): what layers cost, without the program's text."""
        with open(f"/proc/{self.child.pid}/status") as status:
            return int(next(line for line in status if line.startswith("RssAnon")).split()[1])

    def stop(self):
        for connection in self.connections:
            connection.close()
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(START_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        self.log.close()


def attach(connection, store, image, mounts=False, **more):
    """Attaches an image; returns the answer and, with mounts, one descriptor a layer."""
    return connection.call("POST", "/v1/attach", {"store": store, "image": image, "mounts": mounts,
                                                  **more})


def close_all(descriptors):
    for descriptor in descriptors:
        os.close(descriptor)
