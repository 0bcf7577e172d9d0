# SPDX-License-Identifier: Apache-2.0
"""The zoo's models of torchvision and of transformers, with random weights, at sizes that train in
seconds. Left out where the library is missing."""

import importlib.util

import torch
from torch import nn

from zoo import TEXT_TOKENS, logits, model

V, T = 97, 16  # vocabulary and positions of the models of tokens
WIDTH, HEADS, LAYERS, HIDDEN = 32, 4, 2, 64


class Call(nn.Module):
    """A model whose logits need more than one argument, or are not what it gives first."""

    def __init__(self, net, call):
        super().__init__()
        self.net, self.call = net, call

    def forward(self, x):
        return self.call(self.net, x)


# ---- torchvision

def narrow(net, path, n_in, n_out):
    """Puts a smaller linear layer in place of one of thousands of channels."""
    parent, _, name = path.rpartition(".")
    setattr(net.get_submodule(parent), name, nn.Linear(n_in, n_out))
    return net


def vision(name, pixels, build, **more):
    model(name, "torchvision", "image", (3, pixels, pixels), more.pop("classes", 10), **more)(build)


def pooled(net, key="out"):
    """Of a map of classes: the mean over its pixels."""
    return Call(net, lambda net, x: net(x)[key].mean((2, 3)))


def add_torchvision():
    from torchvision import models as tv
    from torchvision.models import video, segmentation
    from torchvision.models.vgg import VGG, make_layers
    plan = [8, "M", 16, "M", 32, 32, "M", 32, 32, "M", 512, "M"]

    def vgg(norm):
        net = VGG(make_layers(plan, batch_norm=norm), num_classes=10, init_weights=True)
        net.avgpool = nn.AdaptiveAvgPool2d(2)
        net = narrow(net, "classifier.0", 2048, 64)
        return narrow(narrow(net, "classifier.3", 64, 64), "classifier.6", 64, 10)

    def alexnet():
        net = tv.alexnet(num_classes=10)
        net = narrow(net, "classifier.1", 256 * 36, 64)
        return narrow(narrow(net, "classifier.4", 64, 64), "classifier.6", 64, 10)

    def vit():
        return tv.VisionTransformer(image_size=32, patch_size=8, num_layers=3, num_heads=4, hidden_dim=64,
                                    mlp_dim=128, dropout=0.1, num_classes=10)

    def swin(version):
        from torchvision.models.swin_transformer import (PatchMergingV2, SwinTransformer, SwinTransformerBlock,
                                                         SwinTransformerBlockV2)
        more = {"block": SwinTransformerBlockV2, "downsample_layer": PatchMergingV2} if version == 2 else {
            "block": SwinTransformerBlock}
        return SwinTransformer(patch_size=[4, 4], embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4],
                               stochastic_depth_prob=0.1, num_classes=10, **more)

    def convnext():
        from torchvision.models.convnext import CNBlockConfig, ConvNeXt
        return ConvNeXt([CNBlockConfig(24, 48, 2), CNBlockConfig(48, 96, 2), CNBlockConfig(96, None, 2)],
                        stochastic_depth_prob=0.1, num_classes=10)

    def maxvit():
        return tv.MaxVit(input_size=(64, 64), stem_channels=16, partition_size=4, block_channels=[16, 32],
                         block_layers=[1, 1], head_dim=8, stochastic_depth_prob=0.1, num_classes=10)

    def clip(net, x):
        return net(x.unflatten(1, (3, 4)))

    def lraspp():
        return pooled(segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=6))

    def deeplab():
        return pooled(segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=6))

    def fcn():
        return pooled(segmentation.fcn_resnet50(weights=None, weights_backbone=None, num_classes=6))

    vision("resnet18", 32, lambda: tv.resnet18(num_classes=10))
    vision("resnet50", 32, lambda: tv.resnet50(num_classes=10), lr=0.01)
    vision("resnext50", 32, lambda: tv.resnext50_32x4d(num_classes=10), lr=0.01)
    vision("vgg11", 64, lambda: vgg(False))
    vision("vgg11_bn", 64, lambda: vgg(True))
    vision("alexnet", 64, alexnet)
    vision("mobilenet_v2", 32, lambda: tv.mobilenet_v2(num_classes=10, width_mult=0.5), batch=32, lr=1e-4)
    vision("mobilenet_v3", 32, lambda: tv.mobilenet_v3_small(num_classes=10))
    vision("regnet", 32, lambda: tv.regnet_y_400mf(num_classes=10))
    vision("densenet", 32, lambda: tv.DenseNet(12, (3, 4, 6, 3), 24, drop_rate=0.1, num_classes=10))
    vision("vit", 32, vit)
    vision("squeezenet", 64, lambda: tv.squeezenet1_1(num_classes=10))
    vision("shufflenet", 64, lambda: tv.shufflenet_v2_x0_5(num_classes=10), batch=32, lr=1e-4)
    vision("mnasnet", 32, lambda: tv.mnasnet0_5(num_classes=10), batch=32, lr=1e-5)
    vision("inception", 96, lambda: tv.inception_v3(num_classes=10, aux_logits=False, init_weights=False), batch=8,
           lr=1e-4)
    vision("googlenet", 64, lambda: Call(tv.googlenet(num_classes=10, init_weights=False),
                                         lambda net, x: logits(net(x))), lr=0.01)  # export knows no named tuple
    vision("deeplab", 64, deeplab, classes=6, batch=8, lr=1e-4)
    vision("fcn", 64, fcn, classes=6, batch=4, lr=0.01)
    vision("lraspp", 64, lraspp, classes=6, batch=4, lr=0.01)
    vision("convnext", 32, convnext)
    vision("efficientnet", 32, lambda: tv.efficientnet_b0(num_classes=10), batch=16, lr=3e-5)
    vision("efficientnet_v2", 32, lambda: tv.efficientnet_v2_s(num_classes=10), batch=16, lr=3e-5)
    vision("swin", 32, lambda: swin(1))
    vision("swin_v2", 32, lambda: swin(2))
    vision("maxvit", 64, maxvit)
    model("r3d", "torchvision", "image", (12, 32, 32), 10, batch=4)(
        lambda: Call(video.r3d_18(num_classes=10), clip))


# ---- transformers

def language(name, build, **more):
    model(name, "transformers", "tokens", (T,), V, **more)(build)


def labelled(name, build, **more):
    model(name, "transformers", "texts", (T,), 3, **more)(build)


def add_transformers():
    import transformers as hf
    usual = {"vocab_size": V, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
             "max_position_embeddings": T, "use_cache": False, "pad_token_id": 0, "bos_token_id": 1,
             "eos_token_id": 2}
    gated = {**usual, "intermediate_size": HIDDEN}
    grouped = {**gated, "num_key_value_heads": 2}
    read = {**gated, "vocab_size": TEXT_TOKENS, "num_labels": 3}
    special = {k: usual[k] for k in ("use_cache", "pad_token_id", "bos_token_id", "eos_token_id")}

    def causal(kind, **keys):
        return lambda: getattr(hf, kind + "ForCausalLM")(getattr(hf, kind + "Config")(**keys))

    def classifier(kind, **keys):
        return lambda: getattr(hf, kind + "ForSequenceClassification")(getattr(hf, kind + "Config")(**keys))

    gpt2 = {"vocab_size": V, "n_positions": T, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, **special}
    language("gpt2", lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**gpt2)))
    language("llama", causal("Llama", **grouped))
    language("qwen2", causal("Qwen2", **grouped))
    language("qwen3", causal("Qwen3", **grouped, head_dim=8))
    language("mistral", causal("Mistral", **grouped))
    language("phi", causal("Phi", **gated))
    language("phi3", causal("Phi3", **grouped))
    language("gemma2", causal("Gemma2", **grouped, head_dim=8))
    language("gpt_neox", causal("GPTNeoX", **gated))
    language("opt", causal("OPT", **{**usual, "ffn_dim": HIDDEN, "word_embed_proj_dim": WIDTH}))
    language("mixtral", causal("Mixtral", **grouped, num_local_experts=4, num_experts_per_tok=2),
             mixes="sort by expert")
    language("mamba", causal("Mamba", **usual, state_size=8))
    language("albert", lambda: hf.AlbertForMaskedLM(hf.AlbertConfig(**gated, embedding_size=16)))

    labelled("bert", classifier("Bert", **read))
    labelled("bert_padded", lambda: Call(classifier("Bert", **read)(),
                                         lambda net, x: logits(net(x, attention_mask=x != 0))))
    labelled("distilbert", lambda: hf.DistilBertForSequenceClassification(hf.DistilBertConfig(
        vocab_size=TEXT_TOKENS, max_position_embeddings=T, dim=WIDTH, n_layers=LAYERS, n_heads=HEADS,
        hidden_dim=HIDDEN, pad_token_id=0, num_labels=3)))
    labelled("roberta", classifier("Roberta", **{**read, "max_position_embeddings": T + 2}))
    labelled("deberta", classifier("DebertaV2", **read, relative_attention=True, pos_att_type=["c2p", "p2c"],
                                   max_relative_positions=T, position_buckets=8))
    halves = {"vocab_size": V, "d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2,
              "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "encoder_ffn_dim": HIDDEN,
              "decoder_ffn_dim": HIDDEN, **special, "decoder_start_token_id": 1}
    language("bart", lambda: hf.BartForConditionalGeneration(hf.BartConfig(
        **halves, max_position_embeddings=T, forced_eos_token_id=None)))
    language("t5", lambda: Call(
        hf.T5ForConditionalGeneration(hf.T5Config(
            vocab_size=V, d_model=WIDTH, d_kv=8, d_ff=HIDDEN, num_layers=2, num_heads=HEADS,
            relative_attention_num_buckets=8, relative_attention_max_distance=16, pad_token_id=0,
            eos_token_id=1, decoder_start_token_id=0)),
        lambda net, x: logits(net(input_ids=x, decoder_input_ids=x, use_cache=False))))

    def whisper():
        keys = {**halves, "vocab_size": 40, "num_mel_bins": 16, "max_source_positions": 24, "max_target_positions": 8,
                "suppress_tokens": None, "begin_suppress_tokens": None}

        def call(net, x):
            words = torch.arange(1, 5, device=x.device).expand(x.shape[0], 4)
            return logits(net(input_features=x.squeeze(1), decoder_input_ids=words))[:, -1]
        return Call(hf.WhisperForConditionalGeneration(hf.WhisperConfig(**keys)), call)

    model("whisper", "transformers", "image", (1, 16, 48), 40)(whisper)
    model("wav2vec2", "transformers", "row", (640,), 4)(lambda: hf.Wav2Vec2ForSequenceClassification(hf.Wav2Vec2Config(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS, intermediate_size=HIDDEN, num_labels=4,
        conv_dim=(16, 16, 16), conv_kernel=(10, 3, 3), conv_stride=(5, 2, 2), num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4, classifier_proj_size=16, layerdrop=0.0,
        apply_spec_augment=False)))
    pixels = {"image_size": 32, "num_labels": 10}
    model("hf_vit", "transformers", "image", (3, 32, 32), 10)(lambda: hf.ViTForImageClassification(hf.ViTConfig(
        **pixels, patch_size=8, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS,
        intermediate_size=HIDDEN)))
    model("hf_swin", "transformers", "image", (3, 32, 32), 10)(lambda: hf.SwinForImageClassification(hf.SwinConfig(
        **pixels, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)))


if importlib.util.find_spec("torchvision"):
    add_torchvision()
if importlib.util.find_spec("transformers"):
    add_transformers()
