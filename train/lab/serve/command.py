"""Answers over HTTP: `python -m train.serve --run=DIR[,DIR] [--port=8000]`."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from train import UserError, exit_code, interruption
from train.lab.serve.options import TOKEN, ServeOptions
from train.settings import flags

if TYPE_CHECKING:
    from train.lab.serve.abilities import Served
    from train.screens.console import Log

USAGE = """usage: python -m train.serve --run=DIR[,DIR] [--port=8000]

Answers requests by the models of run folders and of folders of transformers and sentence-transformers, until Ctrl-C or
SIGTERM: /v1/completions, /v1/chat/completions (streams too) and /v1/embeddings as clients of OpenAI send them; /rerank,
/classify, /fill, /translate; /v1/models, /healthz, /metrics; and a page at / to try them. Requests share batches, and
each answer is what the model says of that request alone. This machine alone can reach it; for other addresses set
TFM_SERVE_TOKEN, which requests then send as "Authorization: Bearer TOKEN"."""

# Seconds in which requests that were taken are answered after a signal.
_GRACE = 60

# Seconds that a connection without requests stays open: a client that uses it again must not meet its end.
_IDLE = 75

# Connections that wait to be taken.
_BACKLOG = 512


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(serve, argv)


def serve(argv):
    """Loads the models, compiles their programs, and answers until a signal comes."""
    options = flags.options(ServeOptions, USAGE, argv)
    if options is None:
        return
    token = os.environ.get(TOKEN, "")
    if not options.is_local and not token:
        raise UserError(
            f"--host={options.host} can be reached from other machines; set {TOKEN} to a secret that requests must send"
        )
    try:
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UserError('train.serve needs some packages more; install them with: pip install "tfm[serve]"') from error
    from train.lab.serve.abilities import served
    from train.lab.serve.app import Server
    from train.lab.serve.engine import Engine
    from train.lab.serve.paths import PATHS
    from train.lab.serve.warming import warm
    from train.screens.console import Log

    with bound(options) as listening:
        log = Log()
        models = list(served(options, log))
        if options.warm:
            warm(models, options, log)
        engine = Engine([work for model in models for work in model.works])
        engine.start()
        _say(options, listening, models, log)
        asyncio.run(_answer(Server(models, options.body, token).application(PATHS), listening))
        engine.close()


@contextlib.contextmanager
def bound(options: ServeOptions) -> Iterator[socket.socket]:
    """The socket that requests come to. Raises UserError for an address that cannot be had."""
    try:
        info = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0]
        # The protocol too: asyncio sends small answers at once (TCP_NODELAY) where a socket names it.
        listening = socket.socket(*info[:3])
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(info[4])
        listening.listen(_BACKLOG)
    except OSError as error:
        place = f"--host={options.host} --port={options.port}"
        raise UserError(f"{place} cannot be had ({error.strerror}); choose another port or address") from error
    with listening:
        yield listening


def _say(options: ServeOptions, listening: socket.socket, models: "list[Served]", log: "Log"):
    for model in models:
        log.info(f"{model.name}: {', '.join(model.abilities)}")
    host = f"[{options.host}]" if ":" in options.host else options.host
    log.info(f"ready at http://{host}:{listening.getsockname()[1]}/")


async def _answer(application: object, listening: socket.socket):
    """Answers until a signal comes, and then what was taken before it."""
    import uvicorn

    class Signalled(uvicorn.Server):
        """Its signals are the command's (`train.interruption`)."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        application,  # type: ignore[arg-type]
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_GRACE,
        timeout_keep_alive=_IDLE,
        server_header=False,
        h11_max_incomplete_event_size=64 << 10,
    )
    server = Signalled(config)
    with interruption.Deferral() as deferral:
        deferral.begin()
        answering = asyncio.create_task(server.serve(sockets=[listening]))
        while not answering.done():
            if interruption.received():
                server.should_exit = True
            await asyncio.wait({answering}, timeout=0.1)
        await answering
