"""`python -m train.search` runs `train.lab.search`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys

from train.lab.search import main

if __name__ == "__main__":
    sys.exit(main())
