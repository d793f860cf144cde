"""The command line as ``python -m convexmarket``."""

from convexmarket.cli import main

if __name__ == "__main__":
    main()
