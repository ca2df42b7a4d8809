"""Processors turn raw examples into the arrays that a model reads; a corpus holds one, and a run folder keeps it.

The processor of texts is a `tokenizers.Tokenizer` or a `ConfiguredTokenizer`. A processor of images is
another kind: a record like TOKENIZER, which its task names.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar

from tfm.options.choices import check_type
from tfm.options.json_text import read_object
from train import UserError
from train.settings.gate import user_errors
from train.text import hf_roles, hf_tokenizer
from train.text.special import AnyTokenizer
from train.text.tokenizer_kinds import read_own

if TYPE_CHECKING:
    from tfm.config.model import Config
    from train.settings.schema import Run

# The processor of pictures, videos or sounds in a Hugging Face folder; transformers 5 writes that of pictures, or
# sounds, with texts into a field of the second file, and that of videos into a file or a field of its own.
FILES = ("preprocessor_config.json", "processor_config.json")
VIDEO_FILE, VIDEO_PART = "video_preprocessor_config.json", "video_processor"


def has_file(folder: Path) -> bool:
    """Whether a Hugging Face folder brings a processor of pictures, videos or sounds."""
    return any((folder / name).is_file() for name in (*FILES, VIDEO_FILE))


def _no_hf_folder(*_: object) -> NoReturn:
    raise UserError("transformers has no such processor; nothing is read or written")


Processor = TypeVar("Processor")
Part = TypeVar("Part")
Record = TypeVar("Record")
Pair = TypeVar("Pair", bound="tuple[Any, Any]")


class ProcessorKind(NamedTuple, Generic[Processor]):
    """How a run folder keeps a processor, and how Hugging Face folders do.

    files: their names in the run folder
    to_texts: processor -> the content of each file; "" in place of an optional one
    read: paths of the files -> processor; raises ValueError where one is damaged
    read_hf: a Hugging Face folder, the configuration of its model -> processor; raises UserError or ValueError
    save_hf: writes what transformers reads: processor, task, run, folder
    hf_fields: processor -> the fields of config.json that depend on it
    tokenizer: processor -> what of it turns texts into tokens; None where examples have no texts
    optional: those of the files that may be absent
    """

    files: tuple[str, ...]
    to_texts: Callable[[Processor], tuple[str, ...]]
    read: Callable[..., Processor]
    read_hf: "Callable[[Path, Config], Processor]" = _no_hf_folder
    save_hf: "Callable[[Processor, hf_tokenizer.MarksTexts, Run, Path], None]" = _no_hf_folder
    hf_fields: Callable[[Processor], Mapping[str, object]] = lambda processor: {}
    tokenizer: "Callable[[Processor], AnyTokenizer | None]" = lambda processor: None
    optional: tuple[str, ...] = ()

    def kept(self, written: object) -> list[str]:
        """The files to read, where run.json names those `written`."""
        names = written if isinstance(written, Mapping) else ()
        return [name for name in self.files if name not in self.optional or name in names]

    def contents(self, processor: Processor) -> dict[str, str]:
        """The files to write, and what is in them."""
        texts = dict(zip(self.files, self.to_texts(processor), strict=True))
        return {name: text for name, text in texts.items() if text or name not in self.optional}


def read_folder(folder: Path, part: str, read: Callable[[dict[str, Any]], Record]) -> Record:
    """What `read` makes of the fields of a processor in a Hugging Face folder; `part` is their name in the joint file.

    Raises UserError where no file has them or `read` refuses them, and ValueError where two files differ.
    """
    plain, joint = (folder / name for name in FILES)
    nested = read_object(joint) if joint.is_file() else {}
    is_picture = part == "image_processor"
    sources: dict[str, Mapping[str, object]] = {}
    for name in (part, VIDEO_PART) if is_picture else (part,):
        if nested.get(name) is not None:
            sources[f"{joint}: {name}"] = check_type(f"{joint}: {name}", nested[name], dict[str, Any])
    for path in (folder / VIDEO_FILE, plain) if is_picture else (plain,):
        if path.is_file():
            sources[str(path)] = read_object(path)
    if not sources:
        raise UserError(
            f"{folder} has no {plain.name}, and no {joint.name} with {part}; take it from the folder in which the "
            "model was published"
        )
    records: dict[str, Record] = {}
    for place, fields in sources.items():
        with user_errors(place):
            records[place] = read(dict(fields))
    first, *rest = sources
    for place in rest:
        _check_equal(first, vars(records[first]), place, vars(records[place]))
    return records[first]


def _check_equal(first: str, values: Mapping[str, object], second: str, second_values: Mapping[str, object]) -> None:
    difference = [
        f"{name} ({values[name]!s:.99} and {second_values.get(name)!s:.99})"
        for name in values
        if values[name] != second_values.get(name)
    ]
    if difference:
        raise ValueError(f"{first} and {second} differ in {', '.join(difference)}; remove one of them")


def _tokenizer_texts(tokenizer: AnyTokenizer) -> tuple[str, ...]:
    return tokenizer.to_str(pretty=True), *hf_roles.save(tokenizer), hf_tokenizer.target_text(tokenizer)


def _read_tokenizer(path: Path, *optional: Path) -> AnyTokenizer:
    """A tokenizer, and what its configuration says of it, and the tokenizer of translations, where the run has them."""
    tokenizer = read_own(path)
    files = {path.name: path for path in optional if path.exists() and path.stat().st_size}
    if hf_roles.CONFIG not in files:
        return tokenizer
    configured = hf_roles.read_kept(tokenizer, files[hf_roles.CONFIG])
    if target := files.get(hf_tokenizer.TARGET):
        configured.target = read_own(target)
    return configured


TOKENIZER = ProcessorKind(
    ("tokenizer.json", hf_roles.CONFIG, hf_roles.GENERATION, hf_tokenizer.TARGET),
    _tokenizer_texts,
    _read_tokenizer,
    hf_tokenizer.read,
    hf_tokenizer.save,
    hf_tokenizer.fields,
    tokenizer=lambda processor: processor,
    optional=(hf_roles.CONFIG, hf_roles.GENERATION, hf_tokenizer.TARGET),
)


def with_tokenizer(kind: ProcessorKind[Part], record: Callable[[Part, AnyTokenizer], Pair]) -> ProcessorKind[Pair]:
    """The processor of two parts: one of this kind, which has one file, and a tokenizer. `record` makes a pair of
    them."""

    def save_hf(processor: Pair, task: hf_tokenizer.MarksTexts, run: "Run", folder: Path) -> None:
        part, tokenizer = processor
        kind.save_hf(part, task, run, folder)
        TOKENIZER.save_hf(tokenizer, task, run, folder)

    return ProcessorKind(
        kind.files + TOKENIZER.files,
        lambda processor: (*kind.to_texts(processor[0]), *TOKENIZER.to_texts(processor[1])),
        lambda path, *tokenizer: record(kind.read(path), TOKENIZER.read(*tokenizer)),
        lambda folder, model: record(kind.read_hf(folder, model), TOKENIZER.read_hf(folder, model)),
        save_hf,
        lambda processor: TOKENIZER.hf_fields(processor[1]),
        tokenizer=lambda processor: processor[1],
        optional=TOKENIZER.optional,
    )
