"""``python -m cql`` is the command ``cql``."""

from cql.command import main

if __name__ == "__main__":
    main()
