"""`python -m train.embed` runs `train.lab.embed`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys

from train.lab.embed import main

if __name__ == "__main__":
    sys.exit(main())
