"""Conversations as the text that a model was trained on: the chat template of its folder, in jinja2's sandbox."""

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

from train import UserError
from train.text.hf_roles import named_tokens
from train.text.special import AnyTokenizer, ConfiguredTokenizer

Message = Mapping[str, str]


def encode_chat(tokenizer: AnyTokenizer, messages: Sequence[Message]) -> list[int]:
    """The tokens of a conversation, up to where the next answer begins.

    messages: each has a `role`, such as user or assistant, and `content`. Raises UserError as `render` does.
    """
    return tokenizer.encode(render(tokenizer, messages), add_special_tokens=False).ids


def render(tokenizer: AnyTokenizer, messages: Sequence[Message]) -> str:
    """The text of a conversation, with the mark of the next answer.

    Raises UserError where the tokenizer has no template, or one that refuses the conversation or cannot be read.
    """
    template = chat_template(tokenizer)
    try:
        import jinja2
    except ImportError as error:
        raise UserError("a chat template needs jinja2; install it with: pip install jinja2") from error
    fields = tokenizer.fields if isinstance(tokenizer, ConfiguredTokenizer) else {}
    try:
        compiled = _environment().from_string(template)
        return compiled.render(
            messages=[dict(message) for message in messages],
            tools=None,
            documents=None,
            add_generation_prompt=True,
            **named_tokens(fields),
        )
    except (jinja2.TemplateError, TypeError, ValueError) as error:
        raise UserError(f"the chat template of the folder refuses the conversation: {error}") from error


def chat_template(tokenizer: AnyTokenizer) -> str:
    """The template of a tokenizer; of several that have names, the default one. Raises UserError if there is none."""
    template = tokenizer.fields.get("chat_template") if isinstance(tokenizer, ConfiguredTokenizer) else None
    if isinstance(template, list):
        by_name = {item.get("name"): item.get("template") for item in template if isinstance(item, dict)}
        template = by_name.get("default")
        if template is None:
            raise UserError(f"the chat templates of the folder are {', '.join(map(str, by_name))}; name one default")
    if not isinstance(template, str):
        raise UserError(
            "the folder has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json); "
            "leave --chat out, or take a model that was trained to chat"
        )
    return template


def _environment() -> Any:
    """The environment that templates of transformers expect: no line breaks of blocks, and a few functions more."""
    import jinja2
    from jinja2 import ext, nodes, sandbox

    class Generation(ext.Extension):
        """`{% generation %}`: what an assistant has written, which is text like any other here."""

        tags = {"generation"}  # noqa: RUF012 (as jinja2 has it)

        def parse(self, parser: Any) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def to_json(value: object, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    def raise_exception(message: str):
        raise jinja2.TemplateError(message)

    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment
