"""Workers of Dask, on this machine or at a scheduler that a user names."""

from __future__ import annotations

from typing import Any

from convexmarket.errors import NotSupportedError, ParameterError

__all__ = ["client_of"]


def client_of(address: str) -> Any:
    """Return a client of the scheduler at an address, or of one worker for each core: "local".

    Raises
    ------
    NotSupportedError
        If Dask is not installed.
    ParameterError
        If nobody answers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise NotSupportedError(
            "Dask is not installed; install convexmarket[dask], or leave out the address"
        ) from None
    if address == "local":
        return Client(threads_per_worker=1, dashboard_address=None)
    try:
        return Client(address, timeout=5)
    except (OSError, ValueError) as error:
        raise ParameterError(
            f"dask is {address!r}, where no scheduler answers ({error}); start one with "
            "'dask scheduler', and workers with 'dask worker ADDRESS'"
        ) from None
