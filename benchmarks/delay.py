"""A line to a server that is some milliseconds away: python -m benchmarks.delay HOST PORT MILLISECONDS

Prints the port where it listens. Whatever is sent, in either direction, arrives after half of the round trip.
"""

from __future__ import annotations

import asyncio
import sys


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, seconds: float) -> None:
    """Forward each piece as long after its arrival. Pieces keep their order, and do not wait for one another."""
    loop = asyncio.get_running_loop()
    while data := await source.read(65536):
        loop.call_later(seconds, sink.write, data)
    loop.call_later(seconds, sink.close)


async def serve(host: str, port: int, milliseconds: float) -> None:
    half, tasks = milliseconds / 2000, set[asyncio.Task[None]]()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, port)
        for pair in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(pump(*pair, half))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
