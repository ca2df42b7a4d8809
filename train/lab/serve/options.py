"""The options of train.serve."""

import dataclasses
import ipaddress

from tfm.options.choices import check_fields, check_maximum, check_minimum
from train.settings.limits import MAX_ROWS

# The variable of the environment whose value requests must bring.
TOKEN = "TFM_SERVE_TOKEN"


@dataclasses.dataclass(frozen=True)
class ServeOptions:
    """What to serve, and how.

    run: folders of models, with commas between; requests call each by the name of its folder
    host: the address to listen at; others than this machine's own need TFM_SERVE_TOKEN
    port: its port; 0 takes a free one
    wait: milliseconds that a text waits for others of its batch
    tokens: of a batch, at most
    slots: texts that a language model writes at a time
    queue: texts that wait for a model, at most; further requests are refused (429)
    body: bytes of a request, at most (413)
    warm: compile the usual programs before the first request
    """

    run: str = ""
    host: str = "127.0.0.1"
    port: int = 8000
    wait: float = 4.0
    tokens: int = 4096
    slots: int = 16
    queue: int = 1024
    body: int = 1 << 20
    warm: bool = True

    def __post_init__(self):
        if not self.run:
            raise ValueError("run=FOLDER must name the folder of a model; several, with commas between")
        check_fields(self)
        check_minimum(self, port=0, wait=0, tokens=16, slots=1, queue=1, body=1024)
        check_maximum(self, "ports have 16 bits", port=65535)
        check_maximum(self, "each is a text in memory", slots=256, queue=MAX_ROWS)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
