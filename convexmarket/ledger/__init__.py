"""The ledger: what was sold, and what of it is spent, in a database that several processes share.

:class:`Ledger` is the public class; an online market's database holds a ledger, too.
"""

from convexmarket.ledger.ledger import Ledger, LedgerAccount

__all__ = ["Ledger", "LedgerAccount"]
