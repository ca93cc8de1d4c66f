"""A listener of compilations."""

import pytest
from numba.core import event


@pytest.fixture
def compilations():
    """The names of compiled functions; loaded ones aren't among them."""
    names = []

    class Listener(event.Listener):
        def on_start(self, began):
            names.append(began.data["dispatcher"].py_func.__name__)

        def on_end(self, _):
            pass

    with event.install_listener("numba:compile", Listener()):
        yield names
