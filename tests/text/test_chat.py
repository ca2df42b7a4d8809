"""Chat templates: what they see, and what is refused."""

import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from train import UserError
from train.text import chat, hf_roles
from train.text.special import ConfiguredTokenizer

TEMPLATE = """{%- for message in messages %}
    {%- if message['role'] == 'tool' %}{{ raise_exception('no tools') }}{% endif %}
    {{- '<' + message['role'] + '>' + message['content'] | trim + eos_token }}
    {%- generation %}{% endgeneration %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"""
MESSAGES = [{"role": "user", "content": " hello "}, {"role": "assistant", "content": 'a "b"'}]


def word_tokenizer():
    """A tokenizer that knows a few words."""
    words = ["[UNK]", "</s>", "hello", "assistant", "user", "<", ">", "a", "b"]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer


def tokenizer(template):
    return ConfiguredTokenizer(word_tokenizer(), {"eos_token": "</s>", "chat_template": template})


def test_a_conversation_ends_where_the_next_answer_begins():
    assert chat.render(tokenizer(TEMPLATE), MESSAGES) == '<user>hello</s><assistant>a "b"</s><assistant>'
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "{{ messages[0] | tojson }}"}]
    assert chat.render(tokenizer(named), MESSAGES) == '{"role": "user", "content": " hello "}'


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "the folder has no chat template"),
        ([{"name": "rag", "template": ""}], "name one default"),
        ("{{ raise_exception('roles must alternate') }}", "refuses the conversation: roles must alternate"),
        ("{% if %}", "refuses the conversation: "),
        ("{{ ''.__class__.__mro__ }}", "refuses the conversation: access to attribute"),
        ("{{ messages.append(1) }}", "refuses the conversation: "),
    ],
)
def test_what_cannot_be_rendered(template, message):
    with pytest.raises(UserError, match=message):
        chat.render(tokenizer(template), MESSAGES)


@pytest.mark.parity
def test_tokens_are_those_of_transformers():
    transformers = pytest.importorskip("transformers")
    reference = transformers.PreTrainedTokenizerFast(tokenizer_object=word_tokenizer(), eos_token="</s>")
    reference.chat_template = TEMPLATE
    text = reference.apply_chat_template(MESSAGES, add_generation_prompt=True, tokenize=False)
    assert chat.render(tokenizer(TEMPLATE), MESSAGES) == text
    ids = reference.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=False)
    assert chat.encode_chat(tokenizer(TEMPLATE), MESSAGES) == ids


def test_tokens_with_names_of_their_own(tmp_path):
    """As fields, as objects, and in an object of names; what only looks like one is none."""
    fields = {
        "eos_token": "</s>", "image_token": "<", "end_token": {"content": ">"}, "add_bos_token": True,
        "extra_special_tokens": {"think": "a", "audio_token": {"content": "b"}}, "model_specific_special_tokens": None,
        "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": "{{ image_token }}{{ end_token }}{{ think }}",
    }  # fmt: skip
    expected = {"eos_token": "</s>", "image_token": "<", "end_token": ">", "think": "a", "audio_token": "b"}
    assert hf_roles.named_tokens(fields) == expected
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(fields))
    read = hf_roles.configured(tmp_path, word_tokenizer(), {})
    assert chat.render(read, MESSAGES) == "<>a"
    (tmp_path / "chat_template.jinja").write_bytes(b"\xef\xbb\xbf{{ audio_token }}")
    assert chat.render(hf_roles.configured(tmp_path, word_tokenizer(), {}), MESSAGES) == "\ufeffb", "as transformers"
