"""A WebSocket server that sends back what it gets, by the library websockets. Usage: echo.py PORT"""

import asyncio
import sys

from websockets.asyncio.server import serve


async def echo(socket):
    async for message in socket:
        await socket.send(message)


async def main(port):
    async with serve(echo, "127.0.0.1", port, max_size=1 << 25) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
