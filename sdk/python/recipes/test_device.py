"""A test that needs the device for itself."""

import belay


def test_has_it_alone(device: belay.Held) -> None:
    assert device.held()
