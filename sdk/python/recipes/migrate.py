"""At start-up every replica wants the new schema (Django, Alembic): one migrates, the others wait until it is done."""

from typing import Callable

import belay


def migrate_once(client: belay.Client, database: str, version: str, migrate: Callable[[], None]) -> bool:
    """Returns when the database has this version; True: it was migrated here."""
    with client.lock(f"migration/{database}", on_place=lambda place: print("waiting, place", place)) as held:
        if held.body.decode() == version:
            return False
        migrate()  # in one transaction with a table of versions, as the tools do
        held.set_body(version)
        return True


if __name__ == "__main__":
    with belay.Client() as client:
        migrate_once(client, "shop", "0042", lambda: print("migrating"))
