"""Who makes the pieces of a store: processes of this machine, or workers of Dask, any of which may be killed."""

import concurrent.futures
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection

from train import UserError
from train.data.store.request import WorkPiece

# How often workers may be killed, one after the other, before any piece is complete.
_DEATHS = 3

Work = Callable[[WorkPiece], None]


def in_this_process(work: Work, pieces: Sequence[WorkPiece]) -> Iterator[WorkPiece]:
    """Works at pieces in this process, one after the other."""
    for piece in pieces:
        work(piece)
        yield piece


def in_processes(work: Work, pieces: Sequence[WorkPiece], workers: int) -> Iterator[WorkPiece | None]:
    """Works at pieces in `workers` processes; yields those that are complete, and None now and then.

    Raises what the work raises, and UserError where workers are killed again and again.
    """
    pending, deaths = list(pieces), 0
    while pending:
        with _pool(min(workers, len(pending)), max(1, (os.cpu_count() or 1) // workers)) as pool:
            futures = {pool.submit(work, piece): piece for piece in pending}
            try:
                for piece in _completed(futures):
                    if piece is not None:
                        pending.remove(piece)
                        deaths = 0
                    yield piece
            except BrokenProcessPool as error:
                deaths += 1
                if deaths == _DEATHS:
                    raise UserError(
                        f"workers are killed again and again, perhaps for want of memory, at {pending[0].name}; try "
                        f"fewer than --workers={workers}, and run the command again: nothing is lost"
                    ) from error
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in list((pool._processes or {}).values()):
                    process.terminate()
                raise


def on_dask(work: Work, pieces: Sequence[WorkPiece], scheduler: str, workers: int) -> Iterator[WorkPiece | None]:
    """Works at pieces on the workers of a Dask scheduler (tcp://host:port), or on `workers` new ones of this machine.

    Dask gives the piece of a worker that dies to another one. Raises UserError where Dask is not installed, and where
    the scheduler cannot be reached, or ends.
    """
    try:
        import distributed
    except ImportError as error:
        raise UserError("--runner=dask needs the packages of pip install 'tfm[prepare]'") from error
    threads = max(1, (os.cpu_count() or 1) // workers)
    started = {} if scheduler else {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
    try:
        client = distributed.Client(scheduler or None, **started)
    except (OSError, ValueError) as error:
        raise UserError(f"--dask.scheduler={scheduler} cannot be reached ({error}); start it, or correct it") from error
    with client:
        futures = {client.submit(work, piece, pure=False, retries=_DEATHS): piece for piece in pieces}
        for future in distributed.as_completed(list(futures)):
            try:
                future.result()
            except concurrent.futures.CancelledError as error:
                raise UserError(
                    "the scheduler of Dask ended; start it again, and run the command again: nothing is lost"
                ) from error
            yield futures[future]


def _completed(futures: "dict[concurrent.futures.Future[None], WorkPiece]") -> Iterator[WorkPiece | None]:
    """The pieces that are complete, and None where none was for some seconds."""
    waiting = set(futures)
    while waiting:
        done, waiting = concurrent.futures.wait(waiting, 2, concurrent.futures.FIRST_COMPLETED)
        if not done:
            yield None
        for future in done:
            future.result()
            yield futures[future]


def _pool(workers: int, threads: int) -> concurrent.futures.ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    return concurrent.futures.ProcessPoolExecutor(workers, context, _begin_worker, (threads,))


def _begin_worker(threads: int) -> None:
    """Shares the cores among workers, and ends a worker whose parent was killed."""
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"

    def end_with_parent() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
