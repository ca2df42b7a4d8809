"""What tests of files of pictures share."""

import pytest


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty folder, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFM_CACHE", str(tmp_path / ".cache"))
    return tmp_path
