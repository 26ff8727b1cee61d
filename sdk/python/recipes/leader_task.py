"""A task in the background that only the leader runs; when it is lost, another replica goes on."""

import asyncio
from typing import Awaitable, Callable

import belay


async def lead(client: belay.AsyncClient, name: str, who: str, work: Callable[[int], Awaitable[None]]) -> None:
    """Waits until this replica leads, and then awaits ``work(fence)``, which is cancelled when it leads no more."""
    while True:
        try:
            async with client.election(name).campaign(who) as held:
                return await work(held.fence)
        except belay.Lost:
            continue  # it is one of those that wait again


async def tick(fence: int) -> None:
    while True:
        print("I lead, fence", fence)
        await asyncio.sleep(1)


async def main() -> None:
    async with belay.AsyncClient() as client:
        await lead(client, "reports", "replica 1", tick)


if __name__ == "__main__":
    asyncio.run(main())
