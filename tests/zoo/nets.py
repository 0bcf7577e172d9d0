# SPDX-License-Identifier: Apache-2.0
"""The zoo's models that are written out: plain modules, in the style of pytorch/examples, of PyTorch's
tutorials about torch.nn, and of three public repositories. Sizes are small."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from zoo import TEXT_TOKENS, model

V, T = 97, 16


# ---- plain

def layers_of(*modules):
    """Names as ppcli's own mlp has them: layers.0.weight."""
    net = nn.Module()
    net.layers = nn.ModuleList(modules)

    class Row(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = net.layers

        def forward(self, x):
            for layer in self.layers[:-1]:
                x = torch.relu(layer(x))
            return self.layers[-1](x)
    return Row()


@model("mlp", "plain", "row", (20,), 5)
def make_mlp():
    return layers_of(nn.Linear(20, 32), nn.Linear(32, 24), nn.Linear(24, 5))


@model("mlp_dropout", "plain", "row", (20,), 5)
def make_mlp_dropout():
    return nn.Sequential(nn.Linear(20, 48), nn.GELU(), nn.Dropout(0.2), nn.Linear(48, 48), nn.Tanh(),
                         nn.Dropout(0.2), nn.LayerNorm(48), nn.Linear(48, 5))


@model("small_cnn", "plain", "image", (3, 16, 16), 10)
def make_small_cnn():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
                         nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.SiLU(),
                         nn.AvgPool2d(2), nn.Flatten(), nn.Linear(512, 10))


def twice(n_in, n_out):
    return nn.Sequential(nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True),
                         nn.Conv2d(n_out, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.bottom = twice(1, 8), twice(8, 16), twice(16, 32)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.right2, self.right1 = twice(32, 16), twice(16, 8)
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        b = self.right2(torch.cat([b, self.up2(c)], 1))
        a = self.right1(torch.cat([a, self.up1(b)], 1))
        return self.head(a).mean((2, 3))


model("unet", "plain", "image", (1, 32, 32), 4)(UNet)


class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(tokens, 32), nn.GELU(), nn.Linear(32, tokens))
        self.channels = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 8, stride=8)
        self.blocks = nn.Sequential(*(MixerBlock(16, 32) for _ in range(3)))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x):
        x = self.blocks(self.stem(x).flatten(2).transpose(1, 2))
        return self.head(self.norm(x).mean(1))


model("mlp_mixer", "plain", "image", (3, 32, 32), 10)(Mixer)


class Siren(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 32), nn.Linear(32, 32), nn.Linear(32, 32)])
        self.head = nn.Linear(32, 6)
        for i, layer in enumerate(self.layers):
            high = 1 / 2 if i == 0 else math.sqrt(6 / 32) / 30
            nn.init.uniform_(layer.weight, -high, high)

    def forward(self, x):
        for layer in self.layers:
            x = torch.sin(30.0 * layer(x))
        return self.head(x)


model("siren", "plain", "row", (2,), 6, lr=0.001)(Siren)
KINDS = (7, 11, 5)


class Tabular(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 4) for n in KINDS)
        self.norm = nn.BatchNorm1d(9)
        self.net = nn.Sequential(nn.Linear(21, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Dropout(0.1), nn.Linear(32, 4))

    def forward(self, x):
        whole = x[:, :3].long()
        parts = [table(whole[:, i]) for i, table in enumerate(self.tables)]
        return self.net(torch.cat([*parts, self.norm(x[:, 3:])], 1))


model("tabular", "plain", "row", (12,), 4, whole=KINDS)(Tabular)


class Dlrm(nn.Module):
    """Facebook's recommendation model: dot products of all pairs of embeddings."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 8) for n in KINDS)
        self.bottom = nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Linear(16, 2))
        self.register_buffer("pairs", torch.tensor([4 * i + j for i in range(4) for j in range(i)]))

    def forward(self, x):
        dense = self.bottom(x[:, 3:])
        all_of = torch.stack([dense] + [t(x[:, i].long()) for i, t in enumerate(self.tables)], 1)
        products = torch.bmm(all_of, all_of.transpose(1, 2)).flatten(1)[:, self.pairs]
        return self.top(torch.cat([dense, products], 1))


model("dlrm", "plain", "row", (12,), 2, whole=KINDS)(Dlrm)


class Branches(nn.Module):
    """Siamese: one trunk for both channels of the input."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(392, 16))
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(torch.abs(self.trunk(x[:, :1]) - self.trunk(x[:, 1:])))


model("siamese_plain", "plain", "image", (2, 16, 16), 2)(Branches)


class TcnBlock(nn.Module):
    def __init__(self, n_in, n_out, dilation):
        super().__init__()
        norm = torch.nn.utils.parametrizations.weight_norm
        self.cut = 2 * dilation
        self.conv1 = norm(nn.Conv1d(n_in, n_out, 3, padding=self.cut, dilation=dilation))
        self.conv2 = norm(nn.Conv1d(n_out, n_out, 3, padding=self.cut, dilation=dilation))
        self.same = nn.Conv1d(n_in, n_out, 1) if n_in != n_out else nn.Identity()
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        y = self.dropout(torch.relu(self.conv1(x)[:, :, :-self.cut]))
        y = self.dropout(torch.relu(self.conv2(y)[:, :, :-self.cut]))
        return torch.relu(self.same(x) + y)


class Tcn(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(TcnBlock(1, 12, 1), TcnBlock(12, 12, 2), TcnBlock(12, 12, 4))
        self.head = nn.Linear(12, 6)

    def forward(self, x):
        return self.head(self.blocks(x.unsqueeze(1))[:, :, -1])


model("tcn", "plain", "row", (32,), 6)(Tcn)


@model("autoencoder", "plain", "image", (1, 16, 16), 256)
def make_autoencoder():
    return nn.Sequential(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1),
                         nn.ReLU(), nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1), nn.ReLU(),
                         nn.Upsample(scale_factor=2), nn.Conv2d(8, 1, 3, padding=1), nn.Flatten())


class Experts(nn.Module):
    """A mixture whose experts all see all rows; the gate keeps the two best."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16)) for _ in range(4))
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        best, where = torch.topk(torch.softmax(self.gate(x), -1), 2, dim=-1)
        share = torch.zeros_like(self.gate(x)).scatter(1, where, best / best.sum(-1, keepdim=True))
        outs = torch.stack([e(x) for e in self.experts], 1)
        return self.head(x + torch.einsum("be,bed->bd", share, outs))


model("moe_dense", "plain", "row", (16,), 5)(Experts)


class Recommender(nn.Module):
    """Factorization machine: a linear part and products of embeddings."""

    def __init__(self):
        super().__init__()
        self.wide, self.factors = nn.Linear(12, 3), nn.Parameter(0.1 * torch.randn(12, 6))
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        pairs = 0.5 * ((x @ self.factors).pow(2) - x.pow(2) @ self.factors.pow(2))
        return self.wide(x) + self.head(pairs)


model("factors", "plain", "row", (12,), 3)(Recommender)


# ---- in the style of pytorch/examples

class Mnist(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, 1), nn.Conv2d(32, 64, 3, 1)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(2304, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = torch.flatten(self.dropout1(F.max_pool2d(x, 2)), 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


model("mnist", "examples", "image", (1, 16, 16), 10)(Mnist)


class MnistRnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(input_size=16, hidden_size=24, batch_first=True)
        self.batchnorm, self.dropout1, self.dropout2 = nn.BatchNorm1d(24), nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(24, 16), nn.Linear(16, 10)

    def forward(self, x):
        x, _ = self.rnn(x.reshape(-1, 16, 16))
        x = self.dropout1(self.batchnorm(x[:, -1]))
        return F.log_softmax(self.fc2(self.dropout2(F.relu(self.fc1(x)))), dim=1)


model("mnist_rnn", "examples", "image", (1, 16, 16), 10)(MnistRnn)


class SuperResolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 5, 1, 2), nn.Conv2d(16, 16, 3, 1, 1)
        self.conv3, self.conv4 = nn.Conv2d(16, 8, 3, 1, 1), nn.Conv2d(8, 4, 3, 1, 1)
        self.pixel_shuffle = nn.PixelShuffle(2)
        for conv in (self.conv1, self.conv2, self.conv3):
            nn.init.orthogonal_(conv.weight, nn.init.calculate_gain("relu"))

    def forward(self, x):
        x = self.relu(self.conv2(self.relu(self.conv1(x))))
        return self.pixel_shuffle(self.conv4(self.relu(self.conv3(x)))).flatten(1)


model("super_resolution", "examples", "image", (1, 8, 8), 256)(SuperResolution)


@model("dcgan_d", "examples", "image", (3, 32, 32), 2)
def make_dcgan_d():
    return nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
                         nn.Conv2d(16, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.LeakyReLU(0.2, inplace=True),
                         nn.Conv2d(32, 64, 4, 2, 1, bias=False), nn.BatchNorm2d(64), nn.LeakyReLU(0.2, inplace=True),
                         nn.Conv2d(64, 2, 4, 1, 0, bias=False), nn.Flatten())


@model("dcgan_g", "examples", "row", (12,), 256)
def make_dcgan_g():
    return nn.Sequential(nn.Unflatten(1, (12, 1, 1)), nn.ConvTranspose2d(12, 32, 4, 1, 0, bias=False),
                         nn.BatchNorm2d(32), nn.ReLU(True), nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
                         nn.BatchNorm2d(16), nn.ReLU(True), nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False), nn.Tanh(),
                         nn.Flatten())


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.noise = 1.0
        self.fc1, self.fc21, self.fc22 = nn.Linear(256, 64), nn.Linear(64, 8), nn.Linear(64, 8)
        self.fc3, self.fc4 = nn.Linear(8, 64), nn.Linear(64, 256)

    def forward(self, x):
        h = F.relu(self.fc1(x.view(-1, 256)))
        mu, logvar = self.fc21(h), self.fc22(h)
        std = torch.exp(0.5 * logvar)
        z = mu + (torch.randn_like(std) if self.noise else 0.5) * std
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))


model("vae", "examples", "image", (1, 16, 16), 256)(Vae)


class Positions(nn.Module):
    """Sines and cosines, as the tutorials add them; positions in dimension 0 or 1."""

    def __init__(self, width, dim, dropout=0.1):
        super().__init__()
        self.dropout, self.dim = nn.Dropout(dropout), dim
        at = torch.arange(T).unsqueeze(1)
        by = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        pe = torch.zeros(T, width)
        pe[:, 0::2], pe[:, 1::2] = torch.sin(at * by), torch.cos(at * by)
        self.register_buffer("pe", pe.unsqueeze(1 - dim))

    def forward(self, x):
        return self.dropout(x + (self.pe[:x.size(0)] if self.dim == 0 else self.pe[:, :x.size(1)]))


class WordTransformer(nn.Transformer):
    """word_language_model's TransformerModel with is_causal=True, without which export cannot decide."""

    def __init__(self):
        super().__init__(d_model=32, nhead=4, dim_feedforward=64, num_encoder_layers=2)
        self.pos_encoder, self.input_emb, self.ninp = Positions(32, 0), nn.Embedding(V, 32), 32
        self.decoder = nn.Linear(32, V)

    def forward(self, x):
        src = x.t()
        mask = torch.log(torch.tril(torch.ones(T, T)))
        src = self.pos_encoder(self.input_emb(src) * math.sqrt(self.ninp))
        out = self.decoder(self.encoder(src, mask=mask, is_causal=True))
        return F.log_softmax(out, dim=-1).transpose(0, 1)


model("word_transformer", "examples", "tokens", (T,), V)(WordTransformer)


class WordLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.encoder = nn.Dropout(0.2), nn.Embedding(V, 24)
        self.rnn, self.decoder = nn.LSTM(24, 24, 2, dropout=0.2), nn.Linear(24, V)
        self.decoder.weight = self.encoder.weight

    def forward(self, x):
        emb = self.drop(self.encoder(x.t()))
        out, _ = self.rnn(emb)
        return F.log_softmax(self.decoder(self.drop(out)), dim=-1).transpose(0, 1)


model("word_lstm", "examples", "tokens", (T,), V)(WordLstm)


class Gcn(nn.Module):
    """Graph convolutions over the nodes of a sample, which all have the same edges."""

    def __init__(self):
        super().__init__()
        a = torch.eye(12) + torch.roll(torch.eye(12), 1, 0) + torch.roll(torch.eye(12), 1, 1)
        self.register_buffer("adjacency", a / 3)
        self.kernel1, self.kernel2 = nn.Parameter(torch.empty(6, 16)), nn.Parameter(torch.empty(16, 4))
        self.bias1, self.bias2 = nn.Parameter(torch.zeros(16)), nn.Parameter(torch.zeros(4))
        nn.init.xavier_normal_(self.kernel1)
        nn.init.xavier_normal_(self.kernel2)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        h = torch.matmul(self.adjacency, torch.matmul(x.squeeze(1), self.kernel1)) + self.bias1
        h = torch.matmul(self.adjacency, torch.matmul(self.dropout(F.relu(h)), self.kernel2)) + self.bias2
        return F.log_softmax(h.mean(1), dim=1)


model("gcn", "examples", "image", (1, 12, 6), 4)(Gcn)


class StyleConv(nn.Module):
    def __init__(self, n_in, n_out, kernel, stride, upsample=None, norm=True):
        super().__init__()
        self.upsample, self.pad = upsample, nn.ReflectionPad2d(kernel // 2)
        self.conv = nn.Conv2d(n_in, n_out, kernel, stride)
        self.norm = nn.InstanceNorm2d(n_out, affine=True) if norm else nn.Identity()

    def forward(self, x):
        if self.upsample:
            x = F.interpolate(x, mode="nearest", scale_factor=self.upsample)
        return self.norm(self.conv(self.pad(x)))


class StyleResidual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1, self.conv2 = StyleConv(channels, channels, 3, 1), StyleConv(channels, channels, 3, 1)

    def forward(self, x):
        return self.conv2(torch.relu(self.conv1(x))) + x


@model("style", "examples", "image", (3, 16, 16), 192)
def make_style():
    """fast_neural_style's TransformerNet; its output, pooled to 8 x 8, is the logits."""
    return nn.Sequential(StyleConv(3, 8, 9, 1), nn.ReLU(), StyleConv(8, 16, 3, 2), nn.ReLU(), StyleResidual(16),
                         StyleResidual(16), StyleConv(16, 8, 3, 1, upsample=2), nn.ReLU(),
                         StyleConv(8, 3, 9, 1, norm=False), nn.AvgPool2d(2), nn.Flatten())


class TimeSequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1, self.lstm2, self.linear = nn.LSTMCell(1, 21), nn.LSTMCell(21, 21), nn.Linear(21, 5)

    def forward(self, x):
        h1, c1, h2, c2 = (torch.zeros(x.size(0), 21, dtype=x.dtype) for _ in range(4))
        for at in x.split(1, dim=1):
            h1, c1 = self.lstm1(at, (h1, c1))
            h2, c2 = self.lstm2(h1, (h2, c2))
        return self.linear(h2)


model("time_sequence", "examples", "row", (10,), 5)(TimeSequence)


class SiameseNetwork(nn.Module):
    """Both pictures through one trunk; their features side by side are judged."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(twice(1, 8), nn.MaxPool2d(2), twice(8, 16), nn.AdaptiveAvgPool2d((1, 1)))
        self.fc = nn.Sequential(nn.Linear(32, 24), nn.ReLU(inplace=True), nn.Linear(24, 2))
        self.sigmoid = nn.Sigmoid()

    def forward_once(self, x):
        out = self.trunk(x)
        return out.view(out.size()[0], -1)

    def forward(self, x):
        first, second = self.forward_once(x[:, 0:1]), self.forward_once(x[:, 1:2])
        return self.sigmoid(self.fc(torch.cat((first, second), 1)))


model("siamese", "examples", "image", (2, 16, 16), 2)(SiameseNetwork)


class ExampleViT(nn.Module):
    """vision_transformer of pytorch/examples: pre-norm blocks around nn.MultiheadAttention."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.pre_norm, self.norm = nn.LayerNorm(32, eps=1e-6), nn.LayerNorm(32, eps=1e-6)
            self.attention = nn.MultiheadAttention(32, 4, dropout=0.1, batch_first=True)
            self.MLP = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

        def forward(self, x):
            n = self.pre_norm(x)
            x = x + self.attention(n, n, n)[0]
            return x + self.MLP(self.norm(x))

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 32, 8, stride=8)
        self.cls_token, self.pos_embed = nn.Parameter(torch.zeros(1, 1, 32)), nn.Parameter(torch.zeros(1, 17, 32))
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        self.blocks = nn.ModuleList(self.Block() for _ in range(3))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


model("example_vit", "examples", "image", (3, 32, 32), 10)(ExampleViT)


# ---- torch.nn and its tutorials

class Encoder(nn.Module):
    def __init__(self, **keys):
        super().__init__()
        self.embedding, self.position = nn.Embedding(TEXT_TOKENS, 32), nn.Parameter(0.02 * torch.randn(T, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, **keys)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.encoder(self.embedding(x) + self.position).mean(1))


model("encoder", "torch.nn", "texts", (T,), 3)(Encoder)
model("encoder_pre_norm", "torch.nn", "texts", (T,), 3)(lambda: Encoder(norm_first=True, activation="gelu"))


class Translator(nn.Module):
    """The language translation tutorial: nn.Transformer between two embeddings, here of the same tokens."""

    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(V, 32), nn.Embedding(V, 32)
        self.positions = Positions(32, 1)
        self.transformer = nn.Transformer(32, 4, 2, 2, 64, batch_first=True)
        self.generator = nn.Linear(32, V)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(T))

    def forward(self, x):
        a, b = self.positions(self.source(x)), self.positions(self.target(x))
        return self.generator(self.transformer(a, b, tgt_mask=self.mask, tgt_is_causal=True))


model("nn_transformer", "torch.nn", "tokens", (T,), V)(Translator)


class TutorialTransformer(nn.Module):
    """The transformer tutorial: positions first, a causal mask, an encoder as a language model."""

    def __init__(self):
        super().__init__()
        self.pos_encoder = Positions(32, 0)
        layer = nn.TransformerEncoderLayer(32, 2, 64, 0.2)
        self.transformer_encoder = nn.TransformerEncoder(layer, 2)
        self.embedding, self.d_model, self.linear = nn.Embedding(V, 32), 32, nn.Linear(32, V)

    def forward(self, x):
        src = self.pos_encoder(self.embedding(x.t()) * math.sqrt(self.d_model))
        mask = nn.Transformer.generate_square_subsequent_mask(T)
        return self.linear(self.transformer_encoder(src, mask, is_causal=True)).transpose(0, 1)


model("transformer_tutorial", "torch.nn", "tokens", (T,), V)(TutorialTransformer)


class PipeliningTutorial(nn.Module):
    """The pipelining tutorial. With batch_first=False, as it stands there, attention goes over samples."""

    def __init__(self, batch_first):
        super().__init__()
        self.tok_embeddings = nn.Embedding(V, 32)
        self.layers = nn.ModuleDict({str(i): nn.TransformerDecoderLayer(32, 4, 64, batch_first=batch_first)
                                     for i in range(4)})
        self.norm, self.output = nn.LayerNorm(32), nn.Linear(32, V)

    def forward(self, x):
        h = self.tok_embeddings(x)
        for layer in self.layers.values():
            h = layer(h, h)
        return self.output(self.norm(h))


model("pipelining", "torch.nn", "tokens", (T,), V, mixes="attention over samples")(lambda: PipeliningTutorial(False))
model("pipelining_batch_first", "torch.nn", "tokens", (T,), V)(lambda: PipeliningTutorial(True))


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.gru = nn.Embedding(TEXT_TOKENS, 24), nn.GRU(24, 24, batch_first=True)
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        out, _ = self.gru(self.embedding(x))
        return self.head(out[:, -1])


model("gru", "torch.nn", "texts", (T,), 3)(Gru)


# ---- as public repositories write them

class NanoAttention(nn.Module):
    def __init__(self, written_out=False):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(32, 96), nn.Linear(32, 32)
        self.attn_dropout, self.resid_dropout, self.written_out = nn.Dropout(0.1), nn.Dropout(0.1), written_out
        if written_out:
            self.register_buffer("bias", torch.tril(torch.ones(T, T)).view(1, 1, T, T))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (y.view(b, t, 4, c // 4).transpose(1, 2) for y in self.c_attn(x).split(32, dim=2))
        if self.written_out:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
            y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.attn_dropout.p, is_causal=True)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c)))


class NewGelu(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class NanoBlock(nn.Module):
    def __init__(self, written_out):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.attn = NanoAttention(written_out)
        self.mlp = nn.Sequential(nn.Linear(32, 128), NewGelu() if written_out else nn.GELU(), nn.Linear(128, 32),
                                 nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Nano(nn.Module):
    """nanoGPT, whose embedding is tied; or minGPT, which writes out attention and GELU and ties nothing."""

    def __init__(self, written_out):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(V, 32), "wpe": nn.Embedding(T, 32), "drop": nn.Dropout(0.1),
            "h": nn.ModuleList(NanoBlock(written_out) for _ in range(3)), "ln_f": nn.LayerNorm(32)})
        self.lm_head = nn.Linear(32, V, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        if not written_out:
            self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))


model("nanogpt", "repositories", "tokens", (T,), V)(lambda: Nano(False))
model("mingpt", "repositories", "tokens", (T,), V)(lambda: Nano(True))


class BilinearUNet(nn.Module):
    """milesial's U-Net: bilinear upsampling, and padding to the size of the skip."""

    def __init__(self):
        super().__init__()
        self.inc, self.down1, self.down2 = twice(3, 8), twice(8, 16), twice(16, 16)
        self.up1, self.up2, self.outc = twice(32, 8), twice(16, 8), nn.Conv2d(8, 4, 1)

    def join(self, conv, low, skip):
        low = F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=True)
        dy, dx = skip.size(2) - low.size(2), skip.size(3) - low.size(3)
        low = F.pad(low, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return conv(torch.cat([skip, low], 1))

    def forward(self, x):
        a = self.inc(x)
        b = self.down1(F.max_pool2d(a, 2))
        c = self.down2(F.max_pool2d(b, 2))
        return self.outc(self.join(self.up2, self.join(self.up1, c, b), a)).mean((2, 3))


model("unet_bilinear", "repositories", "image", (3, 30, 30), 4)(BilinearUNet)
