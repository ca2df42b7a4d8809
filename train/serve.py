"""`python -m train.serve` runs `train.lab.serve.command`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys

from train.lab.serve.command import main

if __name__ == "__main__":
    sys.exit(main())
