"""A bootstrap server as a process of its own, as several P engines would share it: `bootstrap.py`; or BootstrapProcess, which runs it."""

import os
import subprocess
import sys

from processes import end


class BootstrapProcess:
    """Listens at `address` until it is killed; it remembers nothing."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, process_group=0
        )
        port = self.process.stdout.readline().strip()
        assert port.isdigit(), "the bootstrap server ended"
        self.address = f"127.0.0.1:{port}"
        self.url = f"http://{self.address}"

    def kill(self):
        """Ends it as a power failure would. Idempotent."""
        end(self.process, 9)


def main():
    import signal

    from tenure._native import BootstrapServer, MismatchBoard

    server = BootstrapServer("127.0.0.1", 0, token="", board=MismatchBoard())
    print(server.port, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
