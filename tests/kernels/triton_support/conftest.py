"""A stand-in of Triton's driver, to compile for GPUs that aren't there."""

from __future__ import annotations

import pytest


class Driver:
    """As much of a Triton driver as a compilation asks for."""

    def __init__(self, target):
        self._target = target

    def get_current_target(self):
        return self._target

    def get_current_device(self):
        return 0

    def get_current_stream(self, _device):
        return 0


@pytest.fixture
def stand_in_driver():
    """Makes a driver of a target."""
    return Driver
