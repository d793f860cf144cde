"""The lab: what a problem file asks for, run with the library and told in a report.

Nothing in the library knows it. Each kind of experiment is one folder of :mod:`.kinds`.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach(
    __name__,
    submod_attrs={
        "pages": ["report_of"],
        "problem.loading": ["load_problem", "parse_problem"],
        "running": ["run_problem"],
    },
)
