"""``python -m elasticd.train``: a trainer, started by a daemon."""

from elasticd.train.link.host import main

if __name__ == "__main__":
    main()
