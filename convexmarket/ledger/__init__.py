"""Ledger of sold and spent privacy, in a database shared by several processes."""

from convexmarket.ledger.book import Ledger, LedgerAccount

__all__ = ["Ledger", "LedgerAccount"]
