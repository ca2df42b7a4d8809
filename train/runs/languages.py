"""Folders of translation models, opened for the languages that --source and --target name."""

from collections.abc import Mapping
from typing import Protocol

from train import UserError
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import RunFolder, open_folder


class NamesLanguages(Protocol):
    """The options of a command that translates."""

    @property
    def run(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...


def open_for(options: NamesLanguages, changes: Mapping[str, object]) -> RunFolder | HfFolder:
    """The folder of --run, with the languages of the options. Raises UserError where the model translates nothing."""
    folder = open_folder(options.run, changes)
    flags = {"source": options.source, "target": options.target}
    named = {flag: language for flag, language in flags.items() if language}
    if not named:
        return folder
    if folder.task.generates != "translation":
        flag, language = next(iter(named.items()))
        raise UserError(
            f"--{flag}={language} names a language to translate, and --run={options.run} translates nothing; "
            "leave it out"
        )
    return open_folder(options.run, {**changes, **{f"task.{flag}_language": named[flag] for flag in named}})
