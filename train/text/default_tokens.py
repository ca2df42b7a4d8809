"""The special tokens that a tokenizer class of transformers has where no file names others, by their fields."""

from collections.abc import Mapping

BERT = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
ROBERTA = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "mask_token": "<mask>",
}
M2M_100 = {field: token for field, token in ROBERTA.items() if field not in ("cls_token", "mask_token")}
DEBERTA = {**BERT, "bos_token": "[CLS]", "eos_token": "[SEP]"}
ALBERT = {**DEBERTA, "unk_token": "<unk>", "pad_token": "<pad>"}
MPNET = {**ROBERTA, "unk_token": "[UNK]"}
GPT2 = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
QWEN2 = dict.fromkeys(("eos_token", "unk_token", "pad_token"), "<|endoftext|>")
CLIP = {**QWEN2, "bos_token": "<|startoftext|>"}
OPENAI_GPT = {"unk_token": "<unk>"}
T5 = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
LLAMA = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}

# By the name of a class, or of a kind of model, in lower case and without "Tokenizer" and "Fast".
BY_NAME: Mapping[str, Mapping[str, str]] = (
    dict.fromkeys(("bert", "distilbert", "electra", "mobilebert", "convbert", "roformer"), BERT)
    | dict.fromkeys(("roberta", "bart", "xlmroberta", "camembert", "mbart", "mbart50", "nllb", "longformer"), ROBERTA)
    | dict.fromkeys(("deberta", "debertav2"), DEBERTA)
    | dict.fromkeys(("llama", "mistral"), LLAMA)
    | dict.fromkeys(("t5", "mt5", "umt5", "switchtransformers", "marian"), T5)
    | dict.fromkeys(("qwen2", "qwen3"), QWEN2)
    | {
        "albert": ALBERT,
        "mpnet": MPNET,
        "m2m100": M2M_100,
        "gpt2": GPT2,
        "gptneox": {**GPT2, "pad_token": "<|padding|>"},
        "openaigpt": OPENAI_GPT,
        "clip": CLIP,
        "siglip": {**T5, "pad_token": "</s>"},
        "gemma": {
            "unk_token": "<unk>",
            "bos_token": "<bos>",
            "eos_token": "<eos>",
            "pad_token": "<pad>",
            "mask_token": "<mask>",
        },
    }
)

# Those of `BY_NAME` whose class pads texts before their first token.
PADS_LEFT = frozenset("codellama cohere gemma llama siglip2 xlnet".split())
