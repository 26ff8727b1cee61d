"""A pytest fixture: a thing that all test runs share (a database, a device), for one of them at a time."""

from typing import Iterator

import belay
import pytest


@pytest.fixture(scope="session")
def belay_client() -> Iterator[belay.Client]:
    with belay.Client() as client:
        yield client


@pytest.fixture
def device(belay_client: belay.Client) -> Iterator[belay.Held]:
    """The lock of the device. The test fails if it was lost meanwhile: then it proves nothing."""
    with belay_client.lock("test/device", wait=600) as held:
        yield held
