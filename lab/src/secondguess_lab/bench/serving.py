"""The service in a process of its own, as a benchmark starts, watches and ends it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from secondguess.errors import UserError

__all__ = ["SERVE", "Serving"]

SERVE = (sys.executable, "-m", "secondguess", "guard", "serve")


class Serving:
    """A running service.

    Args:
        command: that starts it; it announces its address as a JSON object.
        log: a file that its standard error is added to.

    Attributes:
        address: of the service, such as `http://127.0.0.1:8000`.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        # Batches are small: a second thread would only add waiting.
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                list(command), env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.address = self._announced(log)

    def _announced(self, log: Path) -> str:
        """What the service announces: one JSON object over several lines."""
        assert self.process.stdout is not None
        told = ""
        for line in self.process.stdout:
            told += line
            if line.startswith("}"):
                return str(json.loads(told)["address"])
        self.process.wait()
        said = log.read_text("utf-8", "replace").strip()
        raise UserError(f"The service could not be started: {said.splitlines()[-1] if said else told}")

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, and return the exit code."""
        self.process.send_signal(how)
        self.process.communicate()
        return self.process.returncode

    @property
    def memory(self) -> float:
        """MiB that the process holds for itself, without the files that it maps."""
        found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text("ascii"))
        return int(found[1]) / 1024 if found else 0.0

    @property
    def files(self) -> int:
        """File descriptors that the process has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))
