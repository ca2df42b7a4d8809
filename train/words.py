"""`python -m train.words` runs `train.lab.words`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys

from train.lab.words import main

if __name__ == "__main__":
    sys.exit(main())
