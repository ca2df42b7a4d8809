"""What the tests of stores share."""

import pytest

from train.data.store import layout


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache of their own, and files that wait for no disk: no power is cut here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFM_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(layout.os, "fsync", lambda handle: None)
        yield
