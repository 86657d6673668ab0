"""Makes the tiny models of the vLLM tests: configuration, word-level tokenizer, and random weights.

    tiny_models.py FOLDER NAME...

The weights are drawn wide enough (standard deviation 0.25) that greedy tokens depend on the KV content; vLLM's dummy weights
do not. Shapes are what vLLM's CPU kernels accept: head size 32, linear head size 128.
"""

import json
import pathlib
import sys

VOCABULARY = 512
SPECIAL = ("<s>", "</s>", "<unk>")

ATTENTION = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 131072,
    "rope_theta": 10000.0,
}

MODELS = {
    "llama": {
        **ATTENTION,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 2,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
    },
    # Two groups of window layers and one of full attention.
    "gemma3": {
        **ATTENTION,
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "num_hidden_layers": 6,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
        "sliding_window": 64,
        "sliding_window_pattern": 3,
        "rms_norm_eps": 1e-6,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 32,
        "rope_local_base_freq": 10000.0,
    },
    # Gated delta net states beside full attention, with experts.
    "qwen3next": {
        **ATTENTION,
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention", "full_attention"] * 2,
        "full_attention_interval": 2,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
        "mlp_only_layers": [],
        "partial_rotary_factor": 0.25,
        "rms_norm_eps": 1e-6,
    },
}


def write_tokenizer(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = [f"t{index}" for index in range(VOCABULARY - len(SPECIAL))]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate([*words, *SPECIAL])}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>").save_pretrained(folder)


def write_model(folder, name):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    config = {
        **MODELS[name],
        "vocab_size": VOCABULARY,
        "bos_token_id": VOCABULARY - 3,
        "eos_token_id": VOCABULARY - 2,
        "dtype": "float32",
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).float()
    with torch.no_grad():
        for parameter, value in model.named_parameters():
            if value.dim() >= 2:
                value.normal_(0, 1.0 if "embed" in parameter or "lm_head" in parameter else 0.25)
    model.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    write_tokenizer(folder)


if __name__ == "__main__":
    for wanted in sys.argv[2:]:
        write_model(pathlib.Path(sys.argv[1]) / wanted, wanted)
