"""The text of a run in stores: what `--data=STORE[,STORE]` names."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn, Self, final

from train import UserError
from train.data.store import layout
from train.data.store.layout import Manifest
from train.data.store.reading import StoredShard, StoredTokens
from train.text import control_tokens, tokenize
from train.text.special import AnyTokenizer


@final
class StoredText(Sequence[str]):
    """Documents in stores, in place of a list of them: only their tokens can be read.

    shards: by the names of their sources
    """

    def __init__(self, source: str, manifests: dict[Path, Manifest], parts: Sequence[str]):
        self.source, self._manifests = source, manifests
        self.shards: dict[str, list[StoredShard]] = {}
        for store, manifest in manifests.items():
            for name, shards_of in manifest.sources.items():
                shards = [StoredShard(store, shard) for part in parts for shard in shards_of.get(part, ())]
                if name in self.shards:
                    raise UserError(
                        f"two stores of --data={source} have a source {name!r}; make one under another name"
                    )
                if shards:
                    self.shards[name] = shards

    @classmethod
    def of(cls, source: str, parts: Sequence[str]) -> Self:
        """The text of these parts of one or several stores. Raises UserError for a store that is damaged, or was made
        with another tokenizer than the first."""
        stores = [Path(name) for name in source.split(",")]
        manifests = {store: layout.read_manifest(store) for store in stores}
        first = manifests[stores[0]]
        cures = {
            "tokenizer": f"--tokenizer.path={stores[0] / 'tokenizer.json'}",
            "control_tokens": f"--data.control-tokens={first.control_tokens}",
        }
        for store, manifest in manifests.items():
            for field, cure in cures.items():
                if (value := getattr(manifest, field)) != (expected := getattr(first, field)):
                    raise UserError(
                        f"{store} was made with {field} {value}, and {stores[0]} with {expected}; "
                        f"make {store} again with {cure}"
                    )
        return cls(source, manifests, parts)

    def __len__(self):
        return sum(item.shard.documents for shards in self.shards.values() for item in shards)

    def __getitem__(self, index: object) -> NoReturn:
        raise UserError(f"{self.source} is a store of tokens, and what was asked for needs the text; name that")

    def __iter__(self) -> Iterator[str]:
        return self[0]

    @property
    def digest(self) -> str:
        """A hash of all ids of the stores."""
        return " ".join(manifest.digest for manifest in self._manifests.values())

    def tokenizer(self) -> AnyTokenizer:
        """The tokenizer of the first store."""
        return layout.read_tokenizer(next(iter(self._manifests)))

    def tokens(self, tokenizer: AnyTokenizer, marked: bool, source: str | None = None) -> StoredTokens:
        """The tokens of all sources, or of one. Raises UserError where another tokenizer made them."""
        store, manifest = next(iter(self._manifests.items()))
        if (fingerprint := tokenize.fingerprint(tokenizer)) != manifest.tokenizer:
            raise UserError(
                f"{store} holds tokens of another tokenizer ({manifest.tokenizer}) than the model has ({fingerprint}); "
                "make a store with python -m train.prepare --init=FOLDER, which takes that of the model"
            )
        if (mode := control_tokens.mode()) != manifest.control_tokens:
            raise UserError(
                f"{store} was made with --data.control-tokens={manifest.control_tokens}, and this run says {mode}; say "
                "the same"
            )
        names = self.shards if source is None else [source]
        shards = [item for name in names for item in self.shards[name]]
        return StoredTokens(shards, manifest.dtype, manifest.document_marks, marked)
