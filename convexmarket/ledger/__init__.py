"""The ledger: what was sold, and what of it is spent, in a database that several processes share.

:class:`Ledger` is what users open; the other modules keep its promises, and those of the online
market, whose database holds a ledger too.
"""

from convexmarket.ledger.account import LedgerAccount
from convexmarket.ledger.ledger import Ledger

__all__ = ["Ledger", "LedgerAccount"]
