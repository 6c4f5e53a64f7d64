"""The broker of files: a message is there whole or not at all."""

from pathlib import Path
from typing import Any

from kombu import Connection

import testproject  # noqa: F401 - names the transport


def test_nothing_is_seen_of_a_message_that_is_being_written(tmp_path: Path) -> None:
    seen: list[list[Path]] = []

    class Looking:
        """Looks as a worker would, in the middle of the writing."""

        def __json__(self) -> str:
            seen.append(list(tmp_path.glob("*.msg")))
            return "whole"

    folders = {
        f"{name}_folder{way}": str(tmp_path) for name, way in (("data", "_in"), ("data", "_out"), ("control", ""))
    }
    with Connection("filesystem://", transport_options=folders) as connection:
        channel: Any = connection.default_channel
        channel._put("messages", {"body": Looking()})
        assert seen == [[]]
        assert len(list(tmp_path.glob("*.msg"))) == 1
        assert channel._get("messages") == {"body": "whole"}
