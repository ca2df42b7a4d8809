"""Small models of every family of Hugging Face folders: configurations with odd sizes, architectures, weights.

    python tests/hf_models.py tests/hf_reference [NAME ...]          (needs torch and transformers)

writes what transformers computes with these models, or with the named ones, for the tests that have neither.
"""

import inspect
import json
import re
import sys
import zlib
from functools import partial
from pathlib import Path

import numpy as np

REFERENCE = Path(__file__).parent / "hf_reference"
CACHES = {"past_key_values", "cache"}  # the output of transformers before 5.24, and since
BERT = dict(
    vocab_size=103, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=40,
    max_position_embeddings=29, type_vocab_size=2, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
)  # fmt: skip
LLAMA = dict(
    vocab_size=103, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=6,
    num_key_value_heads=2, max_position_embeddings=40, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1,
)  # fmt: skip
BART = dict(
    vocab_size=103, d_model=24, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3,
    decoder_attention_heads=3, encoder_ffn_dim=40, decoder_ffn_dim=40, max_position_embeddings=31, dropout=0.1,
    attention_dropout=0.1, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2,
    forced_eos_token_id=None,
)  # fmt: skip
MODERNBERT = dict(
    vocab_size=103, hidden_size=24, intermediate_size=40, num_hidden_layers=5, num_attention_heads=3,
    max_position_embeddings=64, global_attn_every_n_layers=3, local_attention=6, pad_token_id=0, bos_token_id=1,
    eos_token_id=2, cls_token_id=1, sep_token_id=2,
)  # fmt: skip
DEBERTA = BERT | dict(
    type_vocab_size=0, relative_attention=True, pos_att_type=["p2c", "c2p"], position_biased_input=False,
    share_att_key=True, position_buckets=4, max_relative_positions=12, norm_rel_ebd="layer_norm",
)  # fmt: skip
LONGFORMER = BERT | dict(type_vocab_size=1, attention_window=4, pad_token_id=1, bos_token_id=0, eos_token_id=2)
BIG_BIRD = BERT | dict(block_size=2, num_random_blocks=1, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LED = {name: value for name, value in BART.items() if name != "max_position_embeddings"} | dict(
    max_encoder_position_embeddings=31, max_decoder_position_embeddings=23, attention_window=4,
)  # fmt: skip
ROFORMER = BERT | dict(rotary_value=False, pad_token_id=0)
FNET = {name: value for name, value in BERT.items() if "attention" not in name}
NYSTROMFORMER = BERT | dict(num_landmarks=17, segment_means_seq_len=17, conv_kernel_size=5, pad_token_id=1)
LONGT5 = dict(
    vocab_size=103, d_model=24, d_kv=10, d_ff=40, num_layers=2, num_decoder_layers=3, num_heads=3, local_radius=2,
    encoder_attention_type="local", relative_attention_num_buckets=8, relative_attention_max_distance=7,
    decoder_start_token_id=0,
)  # fmt: skip
UMT5 = dict(
    vocab_size=103, d_model=24, d_kv=10, d_ff=40, num_layers=2, num_decoder_layers=3, num_heads=3,
    relative_attention_num_buckets=8, relative_attention_max_distance=7, decoder_start_token_id=0,
)  # fmt: skip
SWITCH = UMT5 | dict(
    num_experts=3, expert_capacity=64, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1,
)  # fmt: skip
REFORMER = dict(
    vocab_size=103, hidden_size=24, num_attention_heads=3, attention_head_size=10, feed_forward_size=40,
    attn_layers=["local", "lsh", "lsh"], local_attn_chunk_length=2, lsh_attn_chunk_length=4, num_buckets=[2, 4],
    num_hashes=2, hash_seed=3, axial_pos_shape=[5, 8], axial_pos_embds_dim=[10, 14], max_position_embeddings=40,
    local_attention_probs_dropout_prob=0.0, is_decoder=True,
)  # fmt: skip
IMAGES = dict(
    hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, image_size=[6, 4], patch_size=2,
    hidden_dropout_prob=0.1,
)  # fmt: skip
DINO = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, image_size=6, patch_size=2)
BEIT = IMAGES | dict(image_size=6, vocab_size=37, use_relative_position_bias=True)
# Grids of 4 x 4 patches, and of 2 x 2, which are one window.
SWIN = dict(image_size=8, patch_size=2, embed_dim=8, depths=[2, 1], num_heads=[2, 4], window_size=2)
# Grids of 2 x 2 patches, and of one with [CLS].
PVT = dict(
    image_size=8, num_encoder_blocks=2, depths=[2, 1], hidden_sizes=[8, 12], num_attention_heads=[2, 3],
    mlp_ratios=[2, 3], sequence_reduction_ratios=[2, 1], patch_sizes=[4, 2], strides=[4, 2],
)  # fmt: skip
# Grids of 4 x 4 patches, and of 2 x 2.
SEGFORMER = dict(
    image_size=8, num_encoder_blocks=2, depths=[1, 2], hidden_sizes=[8, 12], num_attention_heads=[2, 3],
    mlp_ratios=[2, 3], sr_ratios=[2, 1], patch_sizes=[5, 3], strides=[2, 2], decoder_hidden_size=10,
)  # fmt: skip
# A grid of 2 x 2 places behind a stem and one stage.
DETR = dict(
    image_size=8, d_model=24, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3, decoder_attention_heads=3,
    encoder_ffn_dim=40, decoder_ffn_dim=40, num_queries=5, use_timm_backbone=False,
    backbone_config=dict(model_type="resnet", embedding_size=6, hidden_sizes=[16], depths=[2], out_features=["stage1"]),
)  # fmt: skip
ENCODERS = ["MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice"]


def heads(name: str, *extra_heads: str) -> list[str]:
    """The architectures of an encoder."""
    return [f"{name}Model", *(f"{name}For{head}" for head in (*ENCODERS, *extra_heads))]


# By name: the model_type, the fields of its configuration, and its architectures.
MODELS = {
    "bert": ("bert", BERT, heads("Bert", "PreTraining", "NextSentencePrediction")),
    "bert_relu": ("bert", BERT | dict(hidden_act="relu", layer_norm_eps=1e-5, type_vocab_size=3), ["BertForMaskedLM"]),
    "roberta": ("roberta", BERT | dict(type_vocab_size=1), heads("Roberta")),
    "xlm_roberta": ("xlm-roberta", BERT | dict(type_vocab_size=1), ["XLMRobertaForSequenceClassification"]),
    "camembert": (
        "camembert",
        BERT | dict(type_vocab_size=1, pad_token_id=1),
        ["CamembertModel", "CamembertForSequenceClassification"],
    ),
    "mpnet": (
        "mpnet",
        {name: value for name, value in BERT.items() if name != "type_vocab_size"}
        | dict(pad_token_id=1, bos_token_id=0, eos_token_id=2),
        heads("MPNet"),
    ),
    "distilbert": (
        "distilbert",
        dict(vocab_size=103, dim=24, n_layers=3, n_heads=3, hidden_dim=40, max_position_embeddings=29),
        heads("DistilBert"),
    ),
    "electra": ("electra", BERT | dict(embedding_size=14), heads("Electra", "PreTraining")),
    "electra_wide": ("electra", BERT | dict(embedding_size=24), ["ElectraForPreTraining"]),
    "albert": ("albert", BERT | dict(embedding_size=14), heads("Albert", "PreTraining")),
    "modernbert": ("modernbert", MODERNBERT, heads("ModernBert")),
    "modernbert_biased": (
        "modernbert",
        MODERNBERT
        | dict(
            norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True, classifier_pooling="mean",
            tie_word_embeddings=False, local_attention=5, global_attn_every_n_layers=2, norm_eps=1e-3,
            rope_parameters={
                "full_attention": {"rope_type": "default", "rope_theta": 700.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            },
        ),
        heads("ModernBert"),
    ),
    "modernbert_order": (
        "modernbert",
        MODERNBERT
        | dict(
            num_hidden_layers=6, global_attn_every_n_layers=None,
            layer_types=["sliding_attention", *["full_attention"] * 2, "sliding_attention", *["full_attention"] * 2],
        ),
        ["ModernBertForMaskedLM"],
    ),
    "modernbert_one": ("modernbert", MODERNBERT | dict(num_hidden_layers=1), ["ModernBertForMaskedLM"]),
    "deberta": ("deberta-v2", DEBERTA, heads("DebertaV2")),
    "deberta_own": (
        "deberta-v2",
        DEBERTA
        | dict(
            share_att_key=False, position_buckets=-1, max_relative_positions=5, norm_rel_ebd="none",
            position_biased_input=True, type_vocab_size=2, pooler_hidden_act="tanh", embedding_size=14,
        ),
        heads("DebertaV2"),
    ),
    "deberta_c2p": (
        "deberta-v2",
        DEBERTA | dict(pos_att_type=["c2p"], share_att_key=False, position_buckets=5),
        ["DebertaV2ForMaskedLM"],
    ),
    "deberta_p2c": ("deberta-v2", DEBERTA | dict(pos_att_type=["p2c"], share_att_key=False), ["DebertaV2ForMaskedLM"]),
    "deberta_absolute": ("deberta-v2", BERT | dict(hidden_act="relu"), ["DebertaV2ForSequenceClassification"]),
    "longformer": ("longformer", LONGFORMER, heads("Longformer")),
    "longformer_windows": (
        "longformer",
        LONGFORMER | dict(attention_window=[4, 8, 4], global_tokens=3, type_vocab_size=2),
        ["LongformerForMaskedLM", "LongformerForTokenClassification"],
    ),
    "big_bird": (
        "big_bird",
        BIG_BIRD,
        [name for name in heads("BigBird", "PreTraining") if not name.endswith("Answering")],
    ),
    "big_bird_random": (
        "big_bird",
        BIG_BIRD | dict(block_size=1, num_random_blocks=2, use_bias=False, rescale_embeddings=True, hidden_act="relu"),
        ["BigBirdForMaskedLM", "BigBirdForSequenceClassification"],
    ),
    "big_bird_short": ("big_bird", BIG_BIRD | dict(block_size=3), ["BigBirdForMaskedLM"]),
    "big_bird_full": ("big_bird", BIG_BIRD | dict(attention_type="original_full"), ["BigBirdForMaskedLM"]),
    "roformer": ("roformer", ROFORMER | dict(embedding_size=14), heads("RoFormer")[:-1]),
    "roformer_wide": ("roformer", ROFORMER | dict(hidden_act="gelu_new"), ["RoFormerForSequenceClassification"]),
    "fnet": ("fnet", FNET | dict(type_vocab_size=4), heads("FNet", "PreTraining", "NextSentencePrediction")),
    "nystromformer": ("nystromformer", NYSTROMFORMER, heads("Nystromformer")),
    "gpt2": (
        "gpt2",
        dict(vocab_size=103, n_positions=40, n_embd=24, n_layer=2, n_head=3, bos_token_id=0, eos_token_id=1),
        ["GPT2LMHeadModel", "GPT2Model"],
    ),
    "gpt_neo": (
        "gpt_neo",
        dict(
            vocab_size=103, hidden_size=24, num_layers=3, num_heads=3, intermediate_size=40, window_size=4,
            attention_types=[[["global", "local", "local"], 1]], max_position_embeddings=40, bos_token_id=0,
            eos_token_id=1,
        ),
        ["GPTNeoForCausalLM", "GPTNeoModel"],
    ),
    "gpt_neox": (
        "gpt_neox",
        dict(
            vocab_size=103, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
            max_position_embeddings=40,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
        ),
        ["GPTNeoXForCausalLM", "GPTNeoXModel"],
    ),
    "gpt_neox_serial": (
        "gpt_neox",
        dict(
            vocab_size=103, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
            max_position_embeddings=40, use_parallel_residual=False,
        ),
        ["GPTNeoXForCausalLM"],
    ),
    "bloom": (
        "bloom",
        dict(vocab_size=103, hidden_size=24, n_layer=2, n_head=6, bos_token_id=0, eos_token_id=1),
        ["BloomForCausalLM", "BloomModel"],
    ),
    "mpt": (
        "mpt",
        dict(vocab_size=103, d_model=24, n_layers=2, n_heads=6, max_seq_len=40, bos_token_id=0, eos_token_id=1),
        ["MptForCausalLM", "MptModel"],
    ),
    "openai_gpt": (
        "openai-gpt",
        dict(vocab_size=103, n_positions=40, n_embd=24, n_layer=2, n_head=3),
        ["OpenAIGPTLMHeadModel", "OpenAIGPTModel"],
    ),
    "qwen2": ("qwen2", LLAMA, ["Qwen2ForCausalLM", "Qwen2Model"]),
    "qwen2_windows": (
        "qwen2",
        LLAMA | dict(num_hidden_layers=3, use_sliding_window=True, sliding_window=4, max_window_layers=1),
        ["Qwen2ForCausalLM"],
    ),
    "llama": ("llama", LLAMA, ["LlamaForCausalLM", "LlamaModel"]),
    "mixtral": (
        "mixtral",
        LLAMA | dict(num_local_experts=3, num_experts_per_tok=2, rms_norm_eps=1e-5),
        ["MixtralForCausalLM", "MixtralModel"],
    ),
    "llama_tied": (
        "llama",
        LLAMA | dict(tie_word_embeddings=True, head_dim=6, num_key_value_heads=6),
        ["LlamaForCausalLM"],
    ),
    "llama_stretched": (
        "llama",
        LLAMA
        | dict(
            rope_parameters={
                "rope_type": "llama3", "rope_theta": 90.0, "factor": 5.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 20,
            },
        ),
        ["LlamaForCausalLM"],
    ),
    "llama_linear": (
        "llama",
        LLAMA | dict(rope_parameters={"rope_type": "linear", "rope_theta": 90.0, "factor": 3.0}),
        ["LlamaForCausalLM"],
    ),
    "llama_dynamic": (
        "llama",
        LLAMA | dict(max_position_embeddings=9, head_dim=8)
        | dict(rope_parameters={"rope_type": "dynamic", "rope_theta": 90.0, "factor": 3.0}),
        ["LlamaForCausalLM"],
    ),
    "llama_yarn": (
        "llama",
        LLAMA
        | dict(
            max_position_embeddings=64, head_dim=8,
            rope_parameters={
                "rope_type": "yarn", "rope_theta": 90.0, "factor": 4.0, "original_max_position_embeddings": 16,
                "beta_fast": 2.5, "beta_slow": 0.2, "mscale": 1.0, "mscale_all_dim": 0.5,
            },
        ),
        ["LlamaForCausalLM"],
    ),
    "llama_longrope": (
        "llama",
        LLAMA
        | dict(
            max_position_embeddings=24, head_dim=8,
            rope_parameters={
                "rope_type": "longrope", "rope_theta": 90.0, "original_max_position_embeddings": 6,
                "short_factor": [1.0, 1.02, 1.1, 1.5], "long_factor": [1.0, 1.25, 3.5, 6.0],
            },
        ),
        ["LlamaForCausalLM"],
    ),
    "mistral": ("mistral", LLAMA | dict(sliding_window=4), ["MistralForCausalLM", "MistralModel"]),
    "qwen3": ("qwen3", LLAMA | dict(head_dim=6), ["Qwen3ForCausalLM", "Qwen3Model"]),
    "t5": (
        "t5",
        dict(
            vocab_size=103, d_model=24, d_kv=10, d_ff=40, num_layers=2, num_decoder_layers=3, num_heads=3,
            relative_attention_num_buckets=8, relative_attention_max_distance=7, decoder_start_token_id=0,
        ),
        ["T5ForConditionalGeneration"],
    ),
    "t5_gated": (
        "t5",
        dict(
            vocab_size=103, d_model=24, d_kv=8, d_ff=40, num_layers=2, num_heads=3, feed_forward_proj="gated-gelu",
            tie_word_embeddings=False, decoder_start_token_id=0,
        ),
        ["T5ForConditionalGeneration"],
    ),
    "mt5": ("mt5", UMT5, ["MT5ForConditionalGeneration"]),
    "umt5": ("umt5", UMT5, ["UMT5ForConditionalGeneration"]),
    "longt5": ("longt5", LONGT5, ["LongT5ForConditionalGeneration"]),
    "longt5_gated": (
        "longt5",
        LONGT5 | dict(d_kv=8, num_decoder_layers=2, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
        ["LongT5ForConditionalGeneration"],
    ),
    "longt5_transient": (
        "longt5",
        LONGT5 | dict(encoder_attention_type="transient-global", global_block_size=4),
        ["LongT5ForConditionalGeneration"],
    ),
    "switch_transformers": ("switch_transformers", SWITCH, ["SwitchTransformersForConditionalGeneration"]),
    "switch_transformers_full": (
        "switch_transformers",
        SWITCH
        | dict(
            num_layers=4, num_sparse_encoder_layers=2, num_sparse_decoder_layers=3, expert_capacity=2,
            dense_act_fn="gelu_new",
        ),
        ["SwitchTransformersForConditionalGeneration"],
    ),
    "reformer": ("reformer", REFORMER, ["ReformerModel", "ReformerModelWithLMHead"]),
    "reformer_one_chunk": (
        "reformer",
        REFORMER | dict(axial_pos_embds=False, num_buckets=None, lsh_attn_chunk_length=32, num_hashes=1),
        ["ReformerModelWithLMHead"],
    ),
    "reformer_encoder": (
        "reformer",
        REFORMER | dict(attn_layers=["lsh"] * 3, num_buckets=6, hash_seed=0, is_decoder=False),
        ["ReformerModel", "ReformerForSequenceClassification", "ReformerForQuestionAnswering"],
    ),
    "bart": ("bart", BART, ["BartForConditionalGeneration"]),
    "led": ("led", LED, ["LEDForConditionalGeneration"]),
    "led_windows": ("led", LED | dict(attention_window=[8, 4], global_tokens=2), ["LEDForConditionalGeneration"]),
    "marian": (
        "marian",
        BART | dict(activation_function="swish", scale_embedding=True, decoder_vocab_size=103),
        ["MarianMTModel"],
    ),
    "pegasus": (
        "pegasus",
        BART | dict(activation_function="relu", scale_embedding=True),
        ["PegasusForConditionalGeneration"],
    ),
    "mbart": ("mbart", BART | dict(scale_embedding=True), ["MBartForConditionalGeneration"]),
    "m2m_100": ("m2m_100", BART | dict(activation_function="relu"), ["M2M100ForConditionalGeneration"]),
    "vit": ("vit", IMAGES, ["ViTModel", "ViTForImageClassification"]),
    "vit_grey": (
        "vit",
        IMAGES | dict(num_channels=1, image_size=6, layer_norm_eps=1e-3, hidden_act="relu"),
        ["ViTForImageClassification"],
    ),
    "deit": (
        "deit",
        IMAGES,
        ["DeiTModel", "DeiTForImageClassificationWithTeacher", "DeiTForImageClassification"],
    ),
    "vit_mae": ("vit_mae", IMAGES | dict(mask_ratio=0.0), ["ViTMAEModel"]),
    "dinov2": ("dinov2", DINO | dict(mlp_ratio=2, layer_norm_eps=1e-3), ["Dinov2Model"]),
    "dinov3_vit": (
        "dinov3_vit",
        DINO | dict(intermediate_size=40, num_register_tokens=3, image_size=[6, 4]),
        ["DINOv3ViTModel"],
    ),
    "dinov3_gated": (
        "dinov3_vit",
        DINO | dict(intermediate_size=40, use_gated_mlp=True, hidden_act="silu", key_bias=True),
        ["DINOv3ViTModel"],
    ),
    "beit": (
        "beit",
        BEIT | dict(use_mask_token=True, use_shared_relative_position_bias=True),
        ["BeitModel", "BeitForImageClassification", "BeitForMaskedImageModeling"],
    ),
    "beit_first": (
        "beit",
        BEIT | dict(use_mean_pooling=False, use_absolute_position_embeddings=True, layer_scale_init_value=0.0),
        ["BeitModel", "BeitForImageClassification"],
    ),
    "vivit": (
        "vivit",
        {name: value for name, value in IMAGES.items() if name != "patch_size"}
        | dict(num_frames=4, tubelet_size=[2, 2, 2]),
        ["VivitModel", "VivitForVideoClassification"],
    ),
    "videomae": (
        "videomae",
        IMAGES | dict(num_frames=4, tubelet_size=2),
        ["VideoMAEModel", "VideoMAEForVideoClassification"],
    ),
    "videomae_first": ("videomae", IMAGES | dict(use_mean_pooling=False), ["VideoMAEForVideoClassification"]),
    "audio_spectrogram_transformer": (
        "audio-spectrogram-transformer",
        {name: value for name, value in IMAGES.items() if name != "image_size"}
        | dict(max_length=8, num_mel_bins=6, patch_size=3, time_stride=2, frequency_stride=1),
        ["ASTModel", "ASTForAudioClassification"],
    ),
    "swin": ("swin", SWIN, ["SwinModel", "SwinForImageClassification"]),
    "swinv2": ("swinv2", SWIN | dict(window_size=3, mlp_ratio=2.5), ["Swinv2Model", "Swinv2ForImageClassification"]),
    "pvt": ("pvt", PVT, ["PvtModel", "PvtForImageClassification"]),
    "segformer": (
        "segformer",
        SEGFORMER,
        ["SegformerModel", "SegformerForImageClassification", "SegformerForSemanticSegmentation"],
    ),
    "detr": ("detr", DETR, ["DetrForObjectDetection"]),
}  # fmt: skip
CASES = [(name, architecture) for name, (_, _, architectures) in MODELS.items() for architecture in architectures]


# What transformers 5 calls parts of a layer of ViT and DeiT, and what save_pretrained calls them in a folder.
SAVED_NAMES = {
    r"\blayers\.(\d+)\.": r"encoder.layer.\1.",
    r"attention\.q_proj": "attention.attention.query",
    r"attention\.k_proj": "attention.attention.key",
    r"attention\.v_proj": "attention.attention.value",
    r"attention\.o_proj": "attention.output.dense",
    r"mlp\.fc1": "intermediate.dense",
    r"mlp\.fc2": "output.dense",
}
# Those of DINOv2, whose other names are the same, and of DINOv3.
DINO_NAMES = {pattern: name for pattern, name in SAVED_NAMES.items() if "attention" in pattern}
DINO_V3_NAMES = {r"^model\.layer\.": "layer."}
VIDEOMAE_NAMES = {r"attention\.(query|value)\.bias": lambda match: f"attention.{match[1][0]}_bias"}
# Those of BEiT.
BEIT_NAMES = {
    r"\.relative_position_bias\.": ".attention.attention.relative_position_bias.",
    r"shared_position_bias": "encoder.relative_position_bias",
} | SAVED_NAMES
# Those of Swin.
SWIN_NAMES = {
    r"attention\.q_proj": "attention.self.query",
    r"attention\.k_proj": "attention.self.key",
    r"attention\.v_proj": "attention.self.value",
    r"attention\.o_proj": "attention.output.dense",
    r"attention\.relative_position_bias": "attention.self",
    r"mlp\.fc1": "intermediate.dense",
    r"mlp\.fc2": "output.dense",
}
# Those of SegFormer, whose stages are apart in a folder.
SEGFORMER_NAMES = {
    r"stages\.(\d+)\.patch_embeddings": r"encoder.patch_embeddings.\1",
    r"stages\.(\d+)\.blocks": r"encoder.block.\1",
    r"stages\.(\d+)\.layer_norm": r"encoder.layer_norm.\1",
    r"layernorm_before": "layer_norm_1",
    r"layernorm_after": "layer_norm_2",
    r"sequence_reduction\.sequence_reduction": "self.sr",
    r"sequence_reduction\.layer_norm": "self.layer_norm",
    r"mlp\.fc": "mlp.dense",
    r"linear_projections": "linear_c",
} | {pattern: name for pattern, name in SWIN_NAMES.items() if "_proj" in pattern}


# Those of DETR.
DETR_NAMES = {r"\.backbone\.": ".backbone.conv_encoder.", r"\.o_proj\.": ".out_proj.", r"\.mlp\.fc": ".fc"}


def saved_name(model_type: str, tensor: str) -> str:
    """The name of a tensor in a folder."""
    names = {"vit": SAVED_NAMES, "deit": SAVED_NAMES, "beit": BEIT_NAMES, "swin": SWIN_NAMES}
    names |= {
        "vit_mae": SAVED_NAMES,
        "audio-spectrogram-transformer": SAVED_NAMES,
        "vivit": SAVED_NAMES,
        "videomae": VIDEOMAE_NAMES,
        "dinov2": DINO_NAMES,
        "dinov3_vit": DINO_V3_NAMES,
        "segformer": SEGFORMER_NAMES,
        "detr": DETR_NAMES,
    }
    names |= {"mixtral": {r"\.mlp\.": ".block_sparse_moe."}}
    for pattern, name in names.get(model_type, {}).items():
        tensor = re.sub(pattern, name, tensor)
    return tensor


def is_of_experts(tensor: str) -> bool:
    """Whether a tensor has a matrix of every expert, which are tensors of their own in a folder."""
    return tensor.endswith(("experts.gate_up_proj", "experts.down_proj"))


def expert_entries(tensor: str, shape) -> list:
    """The matrices of experts that a tensor of transformers 5 holds, as save_pretrained writes them."""
    if not is_of_experts(tensor):
        return []
    module, _, matrices = saved_name("mixtral", tensor).rpartition(".")
    names = ("w1", "w3") if matrices == "gate_up_proj" else ("w2",)
    count, rows, columns = shape[0], shape[1] // len(names), shape[2]

    def matrix(index: int, part: int) -> np.ndarray:
        return weights(tensor, shape).reshape(count, len(names), rows, columns)[index, part]

    return [
        (f"{module}.{index}.{name}.weight", np.dtype("float32"), (rows, columns), partial(matrix, index, part))
        for index in range(count)
        for part, name in enumerate(names)
    ]


def weights(name: str, shape) -> np.ndarray:
    """The values of a tensor, drawn by its name: none is 0 or 1, scales of norms are around 1, and variances above."""
    values = np.random.default_rng(zlib.crc32(name.encode())).normal(0, 0.3, shape)
    if name.endswith("running_var"):
        return (1 + values**2 if "normalization" in name else np.exp(values)).astype(np.float32)
    return (values + (name.endswith("weight") and len(shape) == 1)).astype(np.float32)


def inputs(padded: bool = True) -> dict[str, np.ndarray]:
    """Rows of tokens, the second of which is padded, with token types; sources and targets of a translation; and the
    pixels [B,C,H,W] of images that are larger than models read."""
    rng = np.random.default_rng(7)
    tokens = rng.integers(3, 103, (2, 17))
    valid = np.arange(17) < np.array([[17], [11 if padded else 17]])
    return {
        "tokens": tokens,
        "valid": valid,
        "types": rng.integers(0, 2, (2, 17)),
        "target": rng.integers(3, 103, (2, 9)),
        "pixels": rng.normal(size=(2, 3, 8, 8)).astype(np.float32),
    }


def sound_values(pixels, size: int, bands: int):
    """The corner of images [B,C,H,W] that a model of sounds reads, as frames [B,T,C]."""
    return pixels[:, 0, :size, :bands]


def image_values(pixels, channels: int, height: int, width: int, frames: int | None = None):
    """The corner of images [B,C,H,W] that a model reads; or videos [B,F,C,H,W], whose frames differ."""
    if frames is None:
        return pixels[:, :channels, :height, :width]
    video = pixels[:, None] * np.cos(np.arange(1, frames + 1, dtype=np.float32))[None, :, None, None, None]
    return video[:, :, :channels, :height, :width]


def torch_model(name: str, architecture: str):
    """The model in transformers."""
    import torch
    import transformers

    model_type, fields, _ = MODELS[name]
    labels = {"num_labels": 5} if "MultipleChoice" not in architecture and "Classification" in architecture else {}
    config = transformers.AutoConfig.for_model(model_type, **fields, **labels)
    config._attn_implementation = "eager"
    model = getattr(transformers, architecture)(config).eval()
    with torch.no_grad():
        for tensor, values in [*model.named_parameters(), *model.named_buffers()]:
            is_fixed = tensor.endswith(
                ("final_logits_bias", "embeddings.position_embeddings", "running_mean", "running_var")
            )
            if is_fixed or values.requires_grad or ".backbone." in tensor:
                values.copy_(torch.from_numpy(weights(tensor, tuple(values.shape))))
    return model


def results(config, params, padded: bool = True) -> dict:
    """What our model computes, by the names that transformers has for its results."""
    import jax

    dtypes = {"pixels": "float32"}
    arrays = {name: values.astype(dtypes.get(name, "int32")) for name, values in inputs(padded).items()}
    return jax.jit(partial(_results, config))(params, arrays)


def _results(config, params, arrays) -> dict:
    import jax.numpy as jnp

    import tfm
    from tfm.models.classifier import pooled

    if config.input.array_shape:
        if len(config.input.array_shape) == 2:
            return _array_results(config, params, sound_values(arrays["pixels"], *config.input.array_shape))
        *frames, height, width, channels = config.input.array_shape
        pixels = image_values(arrays["pixels"], channels, height, width, *frames)
        return _array_results(config, params, jnp.moveaxis(pixels, -3, -1))
    tokens, valid = arrays["tokens"], arrays["valid"] > 0
    types = arrays["types"] if config.sizes.get("Y", 0) > 1 else None
    if isinstance(params, tfm.Seq2Seq):
        writer = tfm.encode_source(params, config, tokens, valid)
        hidden = tfm.decoder(writer.decoder, config, arrays["target"], memory=writer.memory)
        return {"logits": tfm.next_logits(writer, config, hidden), "hidden": hidden}
    if isinstance(params, tfm.CausalLM):
        hidden = tfm.decoder(params.decoder, config, tokens, tfm.padding(valid))
        return {"logits": tfm.next_logits(params, config, hidden), "hidden": hidden}
    states = tfm.decoder if config.head.causal else partial(tfm.encoder, types=types)
    hidden = states(params.encoder, config, tokens, tfm.padding(valid))
    outputs = {"hidden": hidden, "last_hidden_state": hidden}
    if isinstance(params, tfm.MaskedLM):
        logits = tfm.mlm_logits(params.head, config, hidden, params.encoder.embed.tokens)
        outputs |= {"logits": logits, "prediction_logits": logits}
        if params.next is not None:
            logits = tfm.next_sentence(params, config, hidden)
            outputs |= {"seq_relationship_logits": logits, "sop_logits": logits}
    elif isinstance(params, tfm.Tagger):
        logits = tfm.classify_tokens(params, config, tokens, valid, types)
        outputs["logits"] = logits[..., 0] if config.classes == 1 else logits
        if config.classes == 2:
            outputs |= {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
    elif params.output is not None and config.classes == 1:  # the rows are continuations of one text
        rows = [None if field is None else field[None] for field in (tokens, valid, types)]
        outputs["logits"] = tfm.score_choices(params, config, *rows)
    elif params.output is not None:
        outputs["logits"] = tfm.classify(params, config, tokens, valid, types)
    elif params.pooler is not None:
        outputs["pooler_output"] = pooled(params.pooler, None, config, hidden[:, 0])
    return outputs


def _array_results(config, params, pixels) -> dict:
    import jax.numpy as jnp

    import tfm
    from tfm.models.classifier import pooled, pooled_states

    hidden = tfm.encoder(params.encoder, config, pixels)
    outputs = {"hidden": hidden, "last_hidden_state": hidden}
    if isinstance(params, tfm.StageTagger):
        return outputs | {"logits": jnp.moveaxis(tfm.pixel_logits(params, config, pixels), -1, 1)}
    if isinstance(params, tfm.ObjectDetector):
        detected = tfm.detect(params, config, pixels)
        return {"hidden": hidden, "logits": detected.logits[-1], "pred_boxes": detected.boxes[-1]}
    if isinstance(params, tfm.Tagger):
        return outputs | {"logits": tfm.patch_logits(params, config, hidden)}
    if params.output is not None:
        outputs["logits"] = tfm.classify(params, config, pixels)
    if params.distilled is not None:
        outputs["cls_logits"], outputs["distillation_logits"] = tfm.classify_distilled(params, config, pixels)
    if params.pooler is not None:
        outputs["pooler_output"] = pooled(params.pooler, None, config, hidden[:, 0])
    elif (params.norm is not None or config.head.pool == "prefix") and params.output is None:
        outputs["pooler_output"] = pooled_states(params, config, hidden)
    return outputs


def torch_results(model, padded: bool = True) -> dict[str, np.ndarray]:
    """What transformers computes: every floating-point result, and the last hidden states."""
    import torch

    arrays = {name: torch.from_numpy(values) for name, values in inputs(padded).items()}
    if model.main_input_name in ("pixel_values", "input_values"):
        return _torch_array_results(model)
    arguments = {"attention_mask": arrays["valid"].long()}
    if model.config.is_encoder_decoder:
        arguments |= {"decoder_input_ids": arrays["target"]}
    elif getattr(model.config, "type_vocab_size", 0) > 1:
        arguments |= {"token_type_ids": arrays["types"]}
    arguments = as_choices(model, {"input_ids": arrays["tokens"]} | arguments | global_tokens(model, arrays["tokens"]))
    parameters = inspect.signature(model.forward).parameters
    if not any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
        arguments = {name: values for name, values in arguments.items() if name in parameters}
    with torch.no_grad():
        outputs = model(**arguments, output_hidden_states=True)
    tensors = {name: values for name, values in outputs.items() if isinstance(values, torch.Tensor) and values.ndim > 1}
    if model.config.model_type == "reformer":  # its hidden states are those of one stream
        with torch.no_grad():
            return {name: values.numpy() for name, values in tensors.items()} | {
                "hidden": model.base_model(**arguments).last_hidden_state.numpy()
            }
    states = outputs.decoder_hidden_states if model.config.is_encoder_decoder else outputs.hidden_states
    last = states[-1][:, : arrays["target" if model.config.is_encoder_decoder else "tokens"].shape[1]]  # not padded
    return {name: values.numpy() for name, values in tensors.items()} | {"hidden": last.numpy()}


def global_tokens(model, tokens) -> dict:
    """The argument of models with global tokens: the first ones, where transformers chooses no or other ones."""
    import torch

    if not hasattr(model.config, "attention_window"):
        return {}
    chooses_texts = type(model).__name__.endswith(("QuestionAnswering", "MultipleChoice"))
    count = getattr(model.config, "global_tokens", 1 if chooses_texts else None)
    if count is None:
        return {}
    return {"global_attention_mask": (torch.arange(tokens.shape[1]) < count).long().expand(tokens.shape)}


def torch_pixels(model):
    """The images, or the sounds, that a model of transformers reads, as it reads them."""
    import torch

    if model.main_input_name == "input_values":
        values = sound_values(inputs()["pixels"], model.config.max_length, model.config.num_mel_bins)
        return torch.from_numpy(values.copy())
    size = model.config.image_size
    height, width = (size, size) if isinstance(size, int) else size
    frames = [model.config.num_frames] if hasattr(model.config, "num_frames") else []
    return torch.from_numpy(image_values(inputs()["pixels"], model.config.num_channels, height, width, *frames).copy())


def _torch_array_results(model) -> dict[str, np.ndarray]:
    import torch

    with torch.no_grad():
        outputs = model(torch_pixels(model), output_hidden_states=True, **in_order(model))
    tensors = {name: values.numpy() for name, values in outputs.items() if isinstance(values, torch.Tensor)}
    if model.config.model_type == "detr":
        return {name: tensors[name] for name in ("logits", "pred_boxes")} | {
            "hidden": tensors["encoder_last_hidden_state"]
        }
    states = outputs.hidden_states[-1]
    if model.config.model_type in ("pvt", "segformer"):  # normalized, and of SegFormer [B,D,H,W]
        hidden = states.flatten(2).transpose(1, 2) if states.ndim == 4 else states
        last = {"last_hidden_state": hidden.numpy()} if "last_hidden_state" in tensors else {}
        return tensors | last | {"hidden": hidden.numpy()}
    norm = model.norm if hasattr(model, "norm") else getattr(model, model.base_model_prefix, model).layernorm
    return tensors | {"hidden": (states if norm is None else norm(states)).detach().numpy()}


def in_order(model) -> dict:
    """The argument of a model that mixes patches up, so that they stay where they are."""
    import torch

    if model.config.model_type != "vit_mae":
        return {}
    return {"noise": torch.arange(model.embeddings.patch_embeddings.num_patches, dtype=torch.float32).expand(2, -1)}


def as_choices(model, arguments: dict) -> dict:
    """The arguments of a model; of a multiple-choice model, the rows are continuations of one text."""
    if not type(model).__name__.endswith("MultipleChoice"):
        return arguments
    return {name: values[None] for name, values in arguments.items()}


def stored(folder: Path, name: str, architecture: str) -> dict[str, list[float]]:
    """Writes a model of `tests/hf_reference` as save_pretrained would; returns what transformers computes with it."""
    from tfm.hf import FAMILIES
    from tfm.hf.parameters import leaves
    from tfm.hf.tensors import write

    reference = json.loads((REFERENCE / f"{name}.json").read_text())[architecture]
    family = FAMILIES[MODELS[name][0]]
    head = family.heads[architecture]
    config = family.config(reference["config"], head)
    model_leaves = leaves(head.specs(config), family.table(config, head))
    own = {tensor for leaf in model_leaves for tensor in (*leaf.names, leaf.tensor.fallback_name)}
    tied_copies = {tensor for copies in family.copies.values() for tensor in copies} - own
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(reference["config"] | {"architectures": [architecture]}))
    entries = [
        (saved_name(MODELS[name][0], tensor), np.dtype("float32"), tuple(shape), partial(weights, tensor, shape))
        for tensor, shape in reference["shapes"].items()
        if saved_name(MODELS[name][0], tensor) not in tied_copies
        and not is_of_experts(tensor)
        and not tensor.endswith("num_batches_tracked")
    ]
    entries += [entry for tensor, shape in reference["shapes"].items() for entry in expert_entries(tensor, shape)]
    write(folder / "model.safetensors", entries)
    return reference["results"]


def main(folder: Path, names: list[str]):
    """Writes a file for each model: its config.json, the shapes of its tensors, and a few numbers of its results."""
    folder.mkdir(exist_ok=True)
    for name in names or MODELS:
        references = {}
        for architecture in MODELS[name][2]:
            model = torch_model(name, architecture)
            config = json.loads(model.config.to_json_string(use_diff=True))
            references[architecture] = {
                "config": {field: value for field, value in config.items() if field != "transformers_version"},
                "shapes": {tensor: list(values.shape) for tensor, values in model.state_dict().items()},
                "results": {
                    output: thinned(values) for output, values in torch_results(model).items() if "past" not in output
                },
            }
        (folder / f"{name}.json").write_text(json.dumps(references) + "\n")


def thinned(values: np.ndarray) -> list[float]:
    """Twelve of the numbers of the first row, which is not padded."""
    row = values[0].ravel()
    return [round(float(value), 6) for value in row[np.linspace(0, row.size - 1, 12).astype(int)]]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
