"""The classes of encoders, language models and translation models: each is a base with a family and an architecture."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from tfm.compat.families import NEED_TARGETS
from tfm.compat.forward import (
    Inputs,
    PastKeyValues,
    Record,
    decode,
    empty_cache,
    encode,
    encode_source,
    read_states,
)
from tfm.compat.generation import generate
from tfm.compat.predictions import Results
from tfm.compat.pretrained import Pretrained
from tfm.params import PyTree


class EncoderModel(Pretrained):
    """An encoder with its head; `generate` refuses it in a sentence."""

    generate = generate

    def __call__(
        self, input_ids, attention_mask=None, token_type_ids=None, position_ids=None, head_mask=None,
        encoder_hidden_states=None, encoder_attention_mask=None, params=None, dropout_rng=None, train=False,
        output_attentions=None, output_hidden_states=None, return_dict=None, past_key_values=None,
    ):  # fmt: skip
        """Rows of tokens [B,T] -> results by name; params is a nested dict like `model.params`.

        head_mask [N] or [L,N] multiplies the attention weights of heads. Of a multiple-choice model, rows are [B,C,T].
        """
        _refuse(encoder_hidden_states=encoder_hidden_states, past_key_values=past_key_values)
        fields = [input_ids, attention_mask, token_type_ids, position_ids]
        is_choice = self._program.head.kind == "choice"
        if is_choice:
            fields = [
                None if field is None else _rows(name, field) for name, field in zip(_FIELDS, fields, strict=True)
            ]
        inputs = self._inputs(*fields)._replace(head_mask=self._head_mask(head_mask))
        record = self._record(output_attentions, output_hidden_states)
        values = encode(self._program, record, self._tree(params), inputs, dropout_key(train, dropout_rng))
        if is_choice:
            values["logits"] = values["logits"].reshape(-1, jnp.shape(input_ids)[1])
        return self._output(values, return_dict)

    def _head_mask(self, head_mask: ArrayLike | None) -> Array | None:
        """A mask of heads as [L,N]. Raises ValueError for one of another shape, and where layers share heads."""
        if head_mask is None:
            return None
        config, mask = self._program.config, jnp.asarray(head_mask, jnp.float32)
        if config.share_layers:
            raise ValueError("head_mask is not supported where all layers are the same; leave it out")
        shape = config.layers, config.heads
        if mask.shape not in (shape, shape[1:]):
            raise ValueError(f"head_mask has shape {mask.shape}; it must be [heads] or [layers, heads], {shape}")
        return jnp.broadcast_to(mask, shape)


class ImageModel(Pretrained):
    """An encoder of images with its head."""

    main_input_name = "pixel_values"

    def __call__(
        self, pixel_values, params=None, dropout_rng=None, train=False, output_attentions=None,
        output_hidden_states=None, return_dict=None,
    ):  # fmt: skip
        """Pixels [B,C,H,W] -> results by name; params is a nested dict like `model.params`."""
        inputs, record = image_inputs(pixel_values), self._record(output_attentions, output_hidden_states)
        return self._output(
            encode(self._program, record, self._tree(params), inputs, dropout_key(train, dropout_rng)),
            return_dict,
        )


class MaskedImageModel(Pretrained):
    """An encoder of images, some of whose patches may be masked, with its head."""

    main_input_name = "pixel_values"

    def __call__(
        self, pixel_values, bool_masked_pos=None, params=None, dropout_rng=None, train=False, output_attentions=None,
        output_hidden_states=None, return_dict=None,
    ):  # fmt: skip
        """Pixels [B,C,H,W] and masked patches [B,P] -> results by name; params is a nested dict like `model.params`.

        A classifier reads all patches, as it did.
        """
        inputs, record = image_inputs(pixel_values), self._record(output_attentions, output_hidden_states)
        if bool_masked_pos is not None and self._program.head.kind != "classify":
            inputs = inputs._replace(masked_patches=jnp.asarray(bool_masked_pos, bool))
        return self._output(
            encode(self._program, record, self._tree(params), inputs, dropout_key(train, dropout_rng)),
            return_dict,
        )


def image_inputs(pixel_values: ArrayLike) -> Inputs:
    """Pixels [B,C,H,W] as a stack reads them. Raises ValueError for another shape."""
    pixels = jnp.asarray(pixel_values)
    if pixels.ndim != 4:
        raise ValueError(
            f"pixel_values have shape {pixels.shape}; they must be images, [batch, channels, height, width]"
        )
    return Inputs(pixels.astype(jnp.float32).transpose(0, 2, 3, 1))


class DecoderModel(Pretrained):
    """A model with a decoder."""

    generate = generate

    def init_cache(self, batch_size: int, max_length: int, encoder_outputs: object = None) -> PastKeyValues:
        """An empty cache for `batch_size` rows of at most `max_length` tokens."""
        return empty_cache(self._program, batch_size, max_length)

    def _decode(
        self,
        record: Record,
        inputs: Inputs,
        source: tuple[Array, Array | None] | None,
        past: PastKeyValues | None,
        params: PyTree,
        key: Array | None,
    ) -> Results:
        """The results of the decoder. Raises ValueError for what cannot be recorded or does not fit."""
        if past is not None:
            slots, count = past.max_length, inputs.tokens.shape[1]
            if record.attentions:
                raise ValueError(
                    "output_attentions is not supported together with past_key_values; leave out one of both"
                )
            if count > slots:
                raise ValueError(
                    f"{count} tokens do not fit into a cache of max_length={slots}; make a longer one with init_cache"
                )
            if inputs.valid is not None:
                missing = max(0, slots - inputs.valid.shape[1])
                inputs = inputs._replace(valid=jnp.pad(inputs.valid, ((0, 0), (0, missing)), constant_values=True))
        return decode(self._program, record, self._tree(params), inputs, source, past, key)


class CausalModel(DecoderModel):
    """A language model."""

    def __call__(
        self, input_ids, attention_mask=None, position_ids=None, encoder_hidden_states=None,
        encoder_attention_mask=None, params=None, past_key_values=None, dropout_rng=None, train=False,
        output_attentions=None, output_hidden_states=None, return_dict=None,
    ):  # fmt: skip
        """Rows of tokens [B,T] -> logits of the token after each; past_key_values come back with these tokens."""
        _refuse(encoder_hidden_states=encoder_hidden_states)
        inputs = self._inputs(input_ids, attention_mask, None, position_ids)
        record = self._record(output_attentions, output_hidden_states)
        return self._output(
            self._decode(record, inputs, None, past_key_values, params, dropout_key(train, dropout_rng)), return_dict
        )


class Seq2SeqModel(DecoderModel):
    """A translation model."""

    def __call__(
        self, input_ids, attention_mask=None, decoder_input_ids=None, decoder_attention_mask=None, position_ids=None,
        decoder_position_ids=None, output_attentions=None, output_hidden_states=None, return_dict=None, train=False,
        params=None, dropout_rng=None,
    ):  # fmt: skip
        """Sources [B,S] and targets [B,T] -> logits of the target token after each."""
        key = dropout_key(train, dropout_rng)
        encoder_key, decoder_key = (None, None) if key is None else jax.random.split(key)
        record = self._record(output_attentions, output_hidden_states)
        source = self._inputs(input_ids, attention_mask, None, position_ids)
        if decoder_input_ids is None:
            if self.family in NEED_TARGETS:
                raise ValueError("decoder_input_ids are missing; give input_ids and decoder_input_ids")
            decoder_input_ids = self._shifted(source.tokens)
        encoded = encode_source(self._program, record, self._tree(params), source, encoder_key)
        inputs = self._inputs(decoder_input_ids, decoder_attention_mask, None, decoder_position_ids)
        decoded = self._decode(record, inputs, (encoded["last_hidden_state"], source.valid), None, params, decoder_key)
        values = {
            **self._predictions(decoded, source, params),
            "decoder_hidden_states": decoded["hidden_states"],
            "decoder_attentions": decoded["attentions"],
            "cross_attentions": decoded["cross_attentions"],
            **{f"encoder_{name}": value for name, value in encoded.items()},
        }
        return self._output(values, return_dict)

    def encode(
        self, input_ids, attention_mask=None, position_ids=None, output_attentions=None, output_hidden_states=None,
        return_dict=None, train=False, params=None, dropout_rng=None,
    ):  # fmt: skip
        """Sources [B,S] -> their last_hidden_state."""
        inputs = self._inputs(input_ids, attention_mask, None, position_ids)
        record = self._record(output_attentions, output_hidden_states)
        return self._output(
            encode_source(self._program, record, self._tree(params), inputs, dropout_key(train, dropout_rng)),
            return_dict,
        )

    def decode(
        self, decoder_input_ids, encoder_outputs, encoder_attention_mask=None, decoder_attention_mask=None,
        decoder_position_ids=None, past_key_values=None, output_attentions=None, output_hidden_states=None,
        return_dict=None, train=False, params=None, dropout_rng=None,
    ):  # fmt: skip
        """Targets [B,T] and the output of `encode` -> logits of the target token after each."""
        inputs = self._inputs(decoder_input_ids, decoder_attention_mask, None, decoder_position_ids)
        record = self._record(output_attentions, output_hidden_states)
        source = encoder_outputs[0], None if encoder_attention_mask is None else jnp.asarray(encoder_attention_mask) > 0
        return self._output(
            self._decode(record, inputs, source, past_key_values, params, dropout_key(train, dropout_rng)), return_dict
        )

    def _shifted(self, tokens: Array) -> Array:
        """Sources as targets: one position later, behind the first token of targets."""
        return shift_tokens_right(tokens, self.config.pad_token_id, self.config.decoder_start_token_id)

    def _predictions(self, decoded: Results, source: Inputs, params: PyTree) -> Results:
        """What the head predicts, by name."""
        return {name: decoded[name] for name in ("logits", "last_hidden_state") if name in decoded}


class ReaderModel(Seq2SeqModel):
    """A translation model whose decoder reads the source once more, and outputs that read its states."""

    def _predictions(self, decoded: Results, source: Inputs, params: PyTree) -> Results:
        """What the head predicts, by name."""
        is_end = source.tokens == self.config.eos_token_id
        return read_states(self._program, self._tree(params), decoded["last_hidden_state"], is_end)


def shift_tokens_right(input_ids: ArrayLike, pad_token_id: int | None, decoder_start_token_id: int) -> Array:
    """Labels [B,T] -> what a decoder reads: one position later, behind a first token; -100 becomes padding."""
    labels = jnp.asarray(input_ids)
    shifted = jnp.concatenate([jnp.full_like(labels[:, :1], decoder_start_token_id), labels[:, :-1]], axis=1)
    return jnp.where(shifted == -100, 0 if pad_token_id is None else pad_token_id, shifted)


BASES = {"lm": CausalModel, "seq2seq": Seq2SeqModel, "read classes": ReaderModel, "read span": ReaderModel}


_FIELDS = "input_ids", "attention_mask", "token_type_ids", "position_ids"


def _rows(name: str, field: ArrayLike | None) -> Array | None:
    """Choices [B,C,T] -> rows [B*C,T]; None stays. Raises ValueError for another shape."""
    if field is None:
        return None
    field = jnp.asarray(field)
    if field.ndim != 3:
        raise ValueError(f"{name} have shape {field.shape}; they must be choices, [batch, choices, length]")
    return field.reshape(-1, field.shape[-1])


def dropout_key(train: bool, rng: Array | None) -> Array | None:
    """The key of dropout. Raises ValueError where training has none."""
    if train and rng is None:
        raise ValueError("train=True needs dropout_rng, a key of jax.random")
    return rng if train else None


def _refuse(**arguments: object):
    """Raises ValueError for arguments that are not supported."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name} is not supported; leave it out")
