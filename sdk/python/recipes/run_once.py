"""A job of a timetable runs once, though every replica has the timetable (APScheduler, Celery beat, cron).

The lock alone is not enough: a replica whose clock is late would find it free again. So what was done last is
stored with the lock, where it stays when nobody holds it.
"""

from datetime import datetime, timezone
from typing import Callable

import belay


def run_once(client: belay.Client, name: str, slot: str, job: Callable[[int], None]) -> bool:
    """Runs ``job(fence)``, unless it was run for this slot or a later one; slots rise as text, as times do."""
    with client.lock(f"timetable/{name}") as held:
        if held.body.decode() >= slot:
            return False
        job(held.fence)
        held.set_body(slot)
        return True


def minute() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M")


def send_reminders(fence: int) -> None:
    print("reminders are sent, fence", fence)


if __name__ == "__main__":  # in each replica, every minute
    with belay.Client() as client:
        run_once(client, "reminders", minute(), send_reminders)
