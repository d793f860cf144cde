"""Record sold and spent privacy in a database that several processes share."""

from convexmarket.ledger.book import Ledger, LedgerAccount

__all__ = ["Ledger", "LedgerAccount"]
