"""`python -m train.sentences` runs `train.lab.sentences`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys

from train.lab.sentences import PROTOCOLS, Settings, evaluate, read_tasks
from train.lab.sentences.command import main

__all__ = ["PROTOCOLS", "Settings", "evaluate", "main", "read_tasks"]

if __name__ == "__main__":
    sys.exit(main())
