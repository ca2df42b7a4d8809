"""`python -m train.mine` runs `train.lab.mine`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import sys

from train.lab.mine import main

if __name__ == "__main__":
    sys.exit(main())
