"""Ledger of sold and spent privacy, in a database shared by several processes."""

from convexmarket.ledger.ledger import Ledger, LedgerAccount

__all__ = ["Ledger", "LedgerAccount"]
