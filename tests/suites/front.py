"""An activator before one pod (`faults front`), and a wait for a port."""

import socket
import subprocess
import time


class Front:
    """Runs until it is closed. `address` is where clients go in."""

    def __init__(self, binary, pod, *arguments):
        command = [binary, "front", pod, *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self._line("ready ")

    def tell(self, word):
        """Has it do what `word` says, and returns when it is so."""
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        self._line("done")

    def _line(self, start):
        line = self.process.stdout.readline().strip()
        if not line.startswith(start):
            raise RuntimeError(f"the activator says {line!r}")
        return line[len(start):]

    def close(self):
        self.process.stdin.close()
        if self.process.wait(timeout=30) != 0:
            raise RuntimeError(f"the activator ends with {self.process.returncode}")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until_listening(port, patience=20):
    deadline = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
