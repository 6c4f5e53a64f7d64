"""Celery's broker of files, whose messages appear whole.

Kombu opens a message's file where workers look for it and writes it afterwards. A worker that looks in between finds an
empty message and ends.
"""

from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

from kombu.transport import filesystem
from kombu.utils.json import dumps


class Channel(filesystem.Channel):
    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override] # its stubs disagree
        seen = Path(self.data_folder_out, f"{round(monotonic() * 1000)}_{uuid4()}.{queue}.msg")
        unseen = seen.with_suffix(".unseen")
        unseen.write_text(dumps(payload))
        unseen.rename(seen)


class Transport(filesystem.Transport):
    Channel = Channel
