# SPDX-License-Identifier: Apache-2.0
"""The transformers of a [model] section in PyTorch, with the names and shapes of ppcli's files: those
of Hugging Face's GPT2LMHeadModel and LlamaForCausalLM, and of torch.nn's own layers. For the peer
torch_text.py, tests/cli/parity_text.py and experiments/text-accuracy.py. All take tokens [rows][T]; what
two models share (a tied weight) is one tensor, so state_dict() has it once."""

import math

import torch
from torch import nn
from torch.nn.functional import linear, scaled_dot_product_attention

ACTIVATIONS = {"relu": nn.functional.relu, "gelu": nn.functional.gelu, "tanh": torch.tanh,
               "silu": nn.functional.silu,
               "gelu_tanh": lambda x: nn.functional.gelu(x, approximate="tanh")}


class Keys:
    """A [model] section with the defaults of ppcli; `tokens` and `labels`: what the data have."""

    def __init__(self, model, tokens=0, labels=0):
        def number(key, default):
            return int(model.get(key, default))
        self.layers, self.heads = number("n_layer", 12), number("n_head", 12)
        self.channels, self.positions = number("n_embd", 768), number("block_size", 1024)
        self.kv_heads = number("n_kv_head", 0) or self.heads
        self.hidden = number("n_hidden", 0)
        self.tokens = number("vocab_size", 0) or tokens
        self.classes = number("classes", 0) or labels
        self.eps, self.dropout = (float(model.get(k, d)) for k, d in (("norm_eps", 1e-5),
                                                                     ("dropout", 0)))
        self.base = float(model.get("rope_base", 10000))
        self.bias, self.batch_first = (model.get(k, "true") in ("true", "on", "yes", "1")
                                       for k in ("bias", "batch_first"))
        self.tied = {"on": True, "off": False}.get(model.get("tie_weights", "auto"),
                                                   model["type"] == "gpt")
        usual = "gelu_tanh" if model["type"] == "gpt" else "relu"
        named = model.get("ffn_activation", "auto")
        self.activation = ACTIVATIONS[usual if named == "auto" else named]
        self.pooling = model.get("pooling", "mean")
        self.masked = model.get("mask_padding", "false") in ("true", "on", "yes", "1")


def split_heads(x, heads):
    """[rows][T][heads * width] -> [rows][heads][T][width]"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Conv1D(nn.Module):
    """A linear layer whose weight is [in][out], as GPT-2's."""

    def __init__(self, n_in, n_out, k, deviation=0.02):
        super().__init__()
        self.weight = nn.Parameter(deviation * torch.randn(n_in, n_out))
        self.bias = nn.Parameter(torch.zeros(n_out)) if k.bias else None

    def forward(self, x):
        return linear(x, self.weight.t(), self.bias)


class GptAttention(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.heads, self.dropout = k.heads, k.dropout
        self.c_attn = Conv1D(k.channels, 3 * k.channels, k)
        self.c_proj = Conv1D(k.channels, k.channels, k, 0.02 / math.sqrt(2 * k.layers))

    def forward(self, x):
        q, k, v = (split_heads(t, self.heads) for t in self.c_attn(x).chunk(3, -1))
        y = scaled_dot_product_attention(q, k, v, is_causal=True,
                                         dropout_p=self.dropout if self.training else 0.0)
        return nn.functional.dropout(self.c_proj(y.transpose(1, 2).flatten(2)), self.dropout,
                                     self.training)


class GptFeedForward(nn.Module):
    def __init__(self, k):
        super().__init__()
        hidden = k.hidden or 4 * k.channels
        self.activation, self.dropout = k.activation, k.dropout
        self.c_fc = Conv1D(k.channels, hidden, k)
        self.c_proj = Conv1D(hidden, k.channels, k, 0.02 / math.sqrt(2 * k.layers))

    def forward(self, x):
        return nn.functional.dropout(self.c_proj(self.activation(self.c_fc(x))), self.dropout,
                                     self.training)


class GptBlock(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.ln_1 = nn.LayerNorm(k.channels, k.eps, bias=k.bias)
        self.attn = GptAttention(k)
        self.ln_2 = nn.LayerNorm(k.channels, k.eps, bias=k.bias)
        self.mlp = GptFeedForward(k)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": normal(nn.Embedding(k.tokens, k.channels)),
            "wpe": normal(nn.Embedding(k.positions, k.channels)),
            "h": nn.ModuleList(GptBlock(k) for _ in range(k.layers)),
            "ln_f": nn.LayerNorm(k.channels, k.eps, bias=k.bias)})
        self.dropout = k.dropout
        self.lm_head = None if k.tied else normal(nn.Linear(k.channels, k.tokens, bias=False))

    def forward(self, tokens):
        t = self.transformer
        x = t.wte(tokens) + t.wpe.weight[:tokens.shape[1]]
        x = nn.functional.dropout(x, self.dropout, self.training)
        for block in t.h:
            x = block(x)
        return linear(t.ln_f(x), (self.lm_head or t.wte).weight)


def normal(module):
    """Its weight as GPT-2's and Llama's begin."""
    nn.init.normal_(module.weight, std=0.02)
    return module


def plain(n_in, n_out):
    return normal(nn.Linear(n_in, n_out, bias=False))


class LlamaAttention(nn.Module):
    def __init__(self, k):
        super().__init__()
        width = k.channels // k.heads
        self.heads, self.kv_heads = k.heads, k.kv_heads
        self.q_proj = plain(k.channels, k.heads * width)
        self.k_proj = plain(k.channels, k.kv_heads * width)
        self.v_proj = plain(k.channels, k.kv_heads * width)
        self.o_proj = plain(k.heads * width, k.channels)
        turns = k.base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angles = torch.outer(torch.arange(k.positions, dtype=torch.float64), turns).repeat(1, 2)
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def rotated(self, x):
        n = x.shape[2]
        low, high = x.chunk(2, -1)
        return x * self.cos[:n] + torch.cat((-high, low), -1) * self.sin[:n]

    def forward(self, x):
        q = self.rotated(split_heads(self.q_proj(x), self.heads))
        k = self.rotated(split_heads(self.k_proj(x), self.kv_heads))
        v = split_heads(self.v_proj(x), self.kv_heads)
        y = scaled_dot_product_attention(q, k, v, is_causal=True,
                                         enable_gqa=self.heads != self.kv_heads)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class LlamaFeedForward(nn.Module):
    def __init__(self, k):
        super().__init__()
        hidden = k.hidden or -(-(8 * k.channels // 3) // 256) * 256
        self.gate_proj = plain(k.channels, hidden)
        self.up_proj = plain(k.channels, hidden)
        self.down_proj = plain(hidden, k.channels)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(k.channels, k.eps)
        self.self_attn = LlamaAttention(k)
        self.post_attention_layernorm = nn.RMSNorm(k.channels, k.eps)
        self.mlp = LlamaFeedForward(k)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.model = nn.ModuleDict({
            "embed_tokens": normal(nn.Embedding(k.tokens, k.channels)),
            "layers": nn.ModuleList(LlamaBlock(k) for _ in range(k.layers)),
            "norm": nn.RMSNorm(k.channels, k.eps)})
        self.lm_head = None if k.tied else plain(k.channels, k.tokens)

    def forward(self, tokens):
        x = self.model.embed_tokens(tokens)
        for block in self.model["layers"]:
            x = block(x)
        return linear(self.model.norm(x), (self.lm_head or self.model.embed_tokens).weight)


class Encoder(nn.Module):
    """A classifier of texts: [rows][classes]."""

    def __init__(self, k):
        super().__init__()
        self.tok_embeddings = nn.Embedding(k.tokens, k.channels)
        self.pos_embeddings = nn.Embedding(k.positions, k.channels)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(
            k.channels, k.heads, k.hidden or 4 * k.channels, k.dropout, k.activation, k.eps,
            batch_first=True) for _ in range(k.layers))
        self.output = nn.Linear(k.channels, k.classes)
        self.pooling, self.masked = k.pooling, k.masked

    def forward(self, tokens):
        x = self.tok_embeddings(tokens) + self.pos_embeddings.weight
        padding = tokens == 0 if self.masked else torch.zeros_like(tokens, dtype=torch.bool)
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding if self.masked else None)
        counts = ~padding[..., None]
        mean = (x * counts).sum(1) / counts.sum(1)
        return self.output(mean if self.pooling == "mean" else x[:, 0])


class Decoder(nn.Module):
    """The model of PyTorch's pipelining tutorial. With batch_first = false its layers take [rows][T]
    for [T][rows], as there: attention over the rows."""

    def __init__(self, k):
        super().__init__()
        self.tok_embeddings = nn.Embedding(k.tokens, k.channels)
        self.layers = nn.ModuleList(nn.TransformerDecoderLayer(
            k.channels, k.heads, k.hidden or 4 * k.channels, k.dropout, k.activation, k.eps,
            batch_first=k.batch_first) for _ in range(k.layers))
        self.norm = nn.LayerNorm(k.channels, k.eps)
        self.output = nn.Linear(k.channels, k.tokens)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x, x)
        return self.output(self.norm(x))


MODELS = {"gpt": Gpt, "llama": Llama, "encoder": Encoder, "decoder": Decoder}


def of_config(model, tokens=0, labels=0):
    """The network of a [model] section, a mapping of its keys to text."""
    return MODELS[model["type"]](Keys(model, tokens, labels))


def decayed(net):
    """What decay = weights takes for weights, then the rest."""
    tensors = list(net.parameters())
    return [p for p in tensors if p.dim() > 1], [p for p in tensors if p.dim() == 1]
