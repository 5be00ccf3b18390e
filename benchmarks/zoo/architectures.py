"""Public architectures with random weights: their constructors and inputs.

timm and torchvision networks have their own depth; transformers have their own widths, two layers and a small vocabulary.
Every entry is a line: a name, and its differences from its family's defaults.  Hand-written networks (HANDMADE), of kinds
without a name in such lists, are separate, so that figures for the list stay comparable.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

__all__ = ["ARCHITECTURES", "HANDMADE", "Architecture", "make", "named"]

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Architecture:
    """One network: `build` creates the module, `inputs` its arguments by name for a batch."""

    name: str
    family: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int], Inputs]


def make(architecture: Architecture, batch: int, seed: int = 0) -> tuple[nn.Module, Inputs]:
    """Returns the module in evaluation mode with random weights and statistics, and its inputs.

    The statistics of batch norms are those of the inputs, slightly perturbed, so that values stay in range at any depth, as in
    a trained network; weights that are initialized to zero (heads, residual gates) are random.
    """
    torch.manual_seed(seed)
    module, inputs = architecture.build().eval(), architecture.inputs(batch)
    for parameter in module.parameters():
        parameter.requires_grad_(False)
        if parameter.dim() > 1 and not parameter.any():
            nn.init.normal_(parameter, std=0.02)
    norms = [
        m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.running_var is not None
    ]
    for norm in norms:
        norm.train().momentum = 1.0
    if norms:
        module(*(torch.cat([v, v.flip(-1)]) for v in inputs.values()))  # a norm of a single value has no variance
    for norm in norms:
        norm.eval()
        assert norm.running_mean is not None and norm.running_var is not None
        norm.running_mean += 0.1 * torch.randn_like(norm.running_mean) * norm.running_var.sqrt()
        norm.running_var *= torch.empty_like(norm.running_var).uniform_(0.5, 1.5)
    return module, inputs


def _image(size: int, batch: int, channels: int = 3) -> Inputs:
    return {"image": torch.randn(batch, channels, size, size)}


def _video(length: int, size: int, batch: int) -> Inputs:
    return {"video": torch.randn(batch, 3, length, size, size)}


def _timm(name: str) -> nn.Module:
    import timm

    with contextlib.suppress(RuntimeError):
        return timm.create_model(name, pretrained=False, exportable=True)  # type: ignore[no-any-return]
    return timm.create_model(name, pretrained=False)  # type: ignore[no-any-return]


def _torchvision(path: str) -> nn.Module:
    import torchvision

    maker: Any = torchvision.models
    for part in path.split("."):
        maker = getattr(maker, part)
    return _First(maker(weights=None, weights_backbone=None) if "segmentation" in path else maker(weights=None))


class _First(nn.Module):
    """Returns the tensors of a module's result: of its record, dictionary or tuple."""

    def __init__(self, module: nn.Module, most: int = 1) -> None:
        super().__init__()
        self.module, self.most = module, most

    def forward(self, *values: torch.Tensor) -> Any:
        result = self.module(*values)
        if isinstance(result, torch.Tensor):
            return result
        items = result.values() if isinstance(result, Mapping) else result
        return next(i for i in items if isinstance(i, torch.Tensor))


class _Detector(nn.Module):
    """Returns the scores of a torchvision detector for the first image; boxes of equal scores may be swapped."""

    def __init__(self, name: str) -> None:
        super().__init__()
        from torchvision.models import detection

        self.module = getattr(detection, name)(weights=None, weights_backbone=None)

    def forward(self, images: torch.Tensor) -> Any:
        return self.module(list(images))[0]["scores"]


class _Text(nn.Module):
    """A transformers model called with keywords; returns the first tensor of its result."""

    def __init__(self, module: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.module, self.names = module, names

    def forward(self, *values: torch.Tensor) -> Any:
        result = self.module(**dict(zip(self.names, values, strict=True)), return_dict=True)
        return next(v for v in result.values() if isinstance(v, torch.Tensor))


_LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "num_layers",
    "n_layers",
    "encoder_layers",
    "decoder_layers",
    "num_decoder_layers",
)
_SMALL = {"vocab_size": 2048}
_PARTS = ("text_config", "vision_config", "audio_config")
# model, extents of its argument behind the batch; 0 is the number of spectra
_SPECTRA: Mapping[str, tuple[int, ...]] = {
    "ASTModel": (0, 128),
    "ClapAudioModel": (1, 0, 64),
    "WhisperModel": (80, 0),
    "Wav2Vec2BertModel": (0, 160),
}


def _transformers(model: str, names: tuple[str, ...], changes: Mapping[str, Any]) -> nn.Module:
    import transformers

    kind = getattr(transformers, model)
    config = kind.config_class()
    for part in (config, *(getattr(config, p, None) for p in _PARTS)):
        if part is not None:
            _shorten(part, changes)
    return _Text(kind(config), names)


def _shorten(config: Any, changes: Mapping[str, Any]) -> None:
    """Gives a configuration of transformers two layers, few tokens and other changes of the fields that it has."""
    for field in _LAYERS:
        if isinstance(getattr(config, field, None), int):
            with contextlib.suppress(NotImplementedError):  # a number that follows from others
                setattr(config, field, 2)
    for field, value in {**_SMALL, **changes}.items():
        if hasattr(config, field):
            pair = field == "image_size" and isinstance(config.image_size, (list, tuple))
            setattr(config, field, [value, value] if pair else value)
    for field in ("use_cache", "output_attentions", "output_hidden_states"):
        if hasattr(config, field):
            setattr(config, field, False)
    for field in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
        if (getattr(config, field, None) or 0) >= 2048 or (
            field == "decoder_start_token_id" and getattr(config, field, 0) is None
        ):
            setattr(config, field, 1)


def _arguments(model: str, sizes: tuple[int, ...], batch: int) -> Inputs:
    """Returns the arguments that a model of transformers takes: texts, images, samples or spectra."""
    import transformers

    kind = getattr(transformers, model)
    config, taken = kind.config_class(), inspect.signature(kind.forward).parameters
    if model in _SPECTRA:
        shape = [sizes[0] if n == 0 else n for n in _SPECTRA[model]]
        given = {kind.main_input_name: torch.randn(batch, *shape)}
    elif kind.main_input_name == "input_values":
        given = _wave(sizes[0], batch)
    elif kind.main_input_name == "input_ids":
        given = _ids(sizes[0], batch, mask="attention_mask" in taken)
    else:
        given = {}
    if "pixel_values" in taken:
        given |= _pixels(sizes[-1], batch)
    if config.is_encoder_decoder and "decoder_input_ids" in taken:
        given["decoder_input_ids"] = torch.randint(3, 2000, (batch, 16))
    return given


def _ids(length: int, batch: int, mask: bool = True) -> Inputs:
    given = {"input_ids": torch.randint(3, 2000, (batch, length))}
    return given | {"attention_mask": torch.ones(batch, length, dtype=torch.int64)} if mask else given


def _pair(length: int, batch: int) -> Inputs:
    return {
        "input_ids": torch.randint(3, 2000, (batch, length)),
        "decoder_input_ids": torch.randint(3, 2000, (batch, 16)),
    }


def _pixels(size: int, batch: int) -> Inputs:
    return {"pixel_values": torch.randn(batch, 3, size, size)}


def _wave(length: int, batch: int) -> Inputs:
    return {"input_values": torch.randn(batch, length)}


# name, image size
_TIMM = """
resnet18 224|resnet50 224|resnext50_32x4d 224|wide_resnet50_2 224|seresnet50 224|ecaresnet50d 224|resnest26d 224
skresnet34 224|res2net50_26w_4s 224|resnetv2_50 224|regnetx_032 224|regnety_032 224|regnetz_c16 224|densenet121 224
dpn68 224|dla34 224|hrnet_w18_small 224|vgg11_bn 224|inception_v3 299|inception_v4 299|inception_resnet_v2 299
xception41 299|nasnetalarge 331|pnasnet5large 331|darknet53 256|cspresnet50 256|cspdarknet53 256|vovnet39a 224
ese_vovnet19b_dw 224|selecsls42b 224|gernet_s 224|rexnet_100 224|mobilenetv2_100 224|mobilenetv3_large_100 224
mobilenetv4_conv_small 224|mobilenetv4_hybrid_medium 256|mnasnet_100 224|efficientnet_b0 224|efficientnet_b3 288
tf_efficientnetv2_s 300|tinynet_a 192|ghostnet_100 224|ghostnetv2_100 224|lcnet_100 224|fbnetc_100 224
spnasnet_100 224|hardcorenas_a 224|repvgg_a2 224|mobileone_s1 224|fastvit_t8 256|repghostnet_100 224|hgnetv2_b0 224
repvit_m1 224|efficientvit_b0 224|efficientvit_m0 224|convnext_tiny 224|convnextv2_nano 224|convnext_atto 224
inception_next_tiny 224|edgenext_small 256|mobilevit_s 256|mobilevitv2_100 256|vit_tiny_patch16_224 224
vit_base_patch16_224 224|vit_small_patch32_224 224|deit3_small_patch16_224 224|beit_base_patch16_224 224
beitv2_base_patch16_224 224|eva02_tiny_patch14_224 224|cait_xxs24_224 224|xcit_nano_12_p16_224 224
swin_tiny_patch4_window7_224 224|swinv2_tiny_window8_256 256|swin_s3_tiny_224 224|pvt_v2_b0 224|twins_svt_small 224
twins_pcpvt_small 224|crossvit_tiny_240 240|coat_lite_tiny 224|coatnet_0_rw_224 224|coatnet_nano_rw_224 224
maxvit_tiny_rw_224 224|maxvit_nano_rw_256 256|gcvit_xxtiny 224|levit_128s 224|levit_256 224|visformer_tiny 224
volo_d1_224 224|poolformer_s12 224|poolformerv2_s12 224|caformer_s18 224|convformer_s18 224|davit_tiny 224
focalnet_tiny_srf 224|mvitv2_tiny 224|nest_tiny_jx 224|pit_ti_224 224|tnt_s_patch16_224 224|convit_tiny 224
convmixer_768_32 224|mixer_s32_224 224|gmixer_24_224 224|resmlp_12_224 224|gmlp_s16_224 224|sequencer2d_s 224
hiera_tiny_224 224|vitamin_small_224 224|starnet_s1 224|mambaout_tiny 224|nextvit_small 224|tiny_vit_5m_224 224
efficientformer_l1 224|efficientformerv2_s0 224|fasternet_t0 224|botnet26t_256 256|halonet26t 256|lambda_resnet26t 256
haloregnetz_b 224|bat_resnext26ts 256|eca_nfnet_l0 224|nf_regnet_b1 256|dm_nfnet_f0 192|resnetblur50 224|tresnet_m 224
"""

# model, text length, changes of the configuration
_ENCODERS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("BertModel", {}),
    ("RobertaModel", {"max_position_embeddings": 514}),
    ("DistilBertModel", {}),
    ("AlbertModel", {}),
    ("ElectraModel", {}),
    ("DebertaV2Model", {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    ("MPNetModel", {}),
    ("FNetModel", {}),
    ("SqueezeBertModel", {}),
    ("ModernBertModel", {}),
    ("NomicBertModel", {}),
    ("RoFormerModel", {}),
    ("ConvBertModel", {}),
    ("LayoutLMModel", {}),
    ("T5EncoderModel", {}),
)
_DECODERS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("GPT2LMHeadModel", {}),
    ("GPTNeoForCausalLM", {"attention_layers": ["global", "local"], "attention_types": [[["global", "local"], 1]]}),
    ("GPTNeoXForCausalLM", {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}),
    ("OPTForCausalLM", {}),
    ("BloomForCausalLM", {"hidden_size": 512, "n_head": 8}),
    (
        "LlamaForCausalLM",
        {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 2816},
    ),
    (
        "MistralForCausalLM",
        {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 2816},
    ),
    (
        "Qwen2ForCausalLM",
        {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 2816},
    ),
    (
        "Qwen3ForCausalLM",
        {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 2816},
    ),
    (
        "GemmaForCausalLM",
        {"hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 2816},
    ),
    (
        "Phi3ForCausalLM",
        {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 2816},
    ),
    (
        "StableLmForCausalLM",
        {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 2816},
    ),
    ("FalconForCausalLM", {"hidden_size": 1024, "num_attention_heads": 16, "alibi": False}),
    (
        "OlmoForCausalLM",
        {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 2816},
    ),
    ("CodeGenForCausalLM", {"n_embd": 512, "n_head": 8, "rotary_dim": 32}),
    ("MambaForCausalLM", {}),
)
_PAIRS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("T5ForConditionalGeneration", {}),
    ("BartModel", {}),
    ("MarianModel", {}),
    ("PegasusModel", {}),
    ("M2M100Model", {}),
    ("ProphetNetModel", {}),
)
_VISION: tuple[tuple[str, int], ...] = (
    ("ViTModel", 224),
    ("DeiTModel", 224),
    ("Dinov2Model", 224),
    ("CLIPVisionModel", 224),
    ("SiglipVisionModel", 224),
    ("SegformerForSemanticSegmentation", 256),
    ("DPTForDepthEstimation", 384),
    ("YolosModel", 224),
    ("SwinModel", 224),
    ("ConvNextV2Model", 224),
    ("MobileViTModel", 256),
    ("PvtModel", 224),
    ("LevitModel", 224),
    ("ResNetModel", 224),
    ("BitModel", 224),
    ("VitDetModel", 224),
)
_SPEECH: tuple[str, ...] = ("Wav2Vec2Model", "HubertModel", "WavLMModel", "UniSpeechModel")
_TORCHVISION = (
    "alexnet 224|squeezenet1_1 224|shufflenet_v2_x1_0 224|googlenet 224|mnasnet0_5 224|swin_v2_t 256|maxvit_t 224|vit_b_32 224"
    "|segmentation.fcn_resnet50 160|segmentation.deeplabv3_mobilenet_v3_large 160|segmentation.lraspp_mobilenet_v3_large 160"
)
_DETECTORS = (
    "fasterrcnn_mobilenet_v3_large_320_fpn|fasterrcnn_resnet50_fpn|maskrcnn_resnet50_fpn|keypointrcnn_resnet50_fpn"
    "|ssd300_vgg16|ssdlite320_mobilenet_v3_large"
)
_VIDEO = "r3d_18 8 64|r2plus1d_18 8 64|mc3_18 8 64|s3d 16 224|mvit_v2_s 16 224|swin3d_t 8 112"


class _Recurrent(nn.Module):
    """Two layers of an LSTM, GRU or tanh network over a sequence, and its last state."""

    def __init__(self, kind: type[nn.RNNBase], bidirectional: bool) -> None:
        super().__init__()
        self.cells = kind(128, 128, num_layers=2, batch_first=True, bidirectional=bidirectional)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        return self.cells(sequence)[0]  # type: ignore[no-any-return]


def _decoder(layers: int) -> nn.Module:
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "generate"))
    from decoder import Decoder, Sizes

    return Decoder(Sizes(layers))


def _cached(layers: int, known: int, length: int, batch: int) -> Inputs:
    """Returns tokens and a cache of `known` positions, with the default sizes of examples/generate."""
    past = {f"past_{n}": torch.randn(batch, 4, known, 64) for n in range(2 * layers)}
    return {"ids": torch.randint(0, 32000, (batch, length)), **past}


def _sequence(batch: int) -> Inputs:
    return {"sequence": torch.randn(batch, 40, 128)}


def _all() -> Iterator[Architecture]:
    for entry in _TIMM.replace("\n", "|").split("|"):
        if entry.strip():
            name, size = entry.split()
            yield Architecture(name, "timm", partial(_timm, name), partial(_image, int(size)))
    for entry in _TORCHVISION.split("|"):
        name, size = entry.split()
        yield Architecture(
            f"tv_{name.rpartition('.')[2]}", "torchvision", partial(_torchvision, name), partial(_image, int(size))
        )
    for name in _DETECTORS.split("|"):
        yield Architecture(f"tv_{name}", "detection", partial(_Detector, name), partial(_image, 300))
    for entry in _VIDEO.split("|"):
        name, length, size = entry.split()
        yield Architecture(
            f"tv_{name}", "video", partial(_torchvision, f"video.{name}"), partial(_video, int(length), int(size))
        )
    masked = ("input_ids", "attention_mask")
    for model, changes in _ENCODERS:
        names = masked[:1] if model == "FNetModel" else masked
        yield Architecture(
            model, "encoder", partial(_transformers, model, names, changes), partial(_ids, 128, mask=len(names) == 2)
        )
    for model, changes in _DECODERS:
        names = masked[:1] if model == "MambaForCausalLM" else masked
        yield Architecture(
            model, "decoder", partial(_transformers, model, names, changes), partial(_ids, 64, mask=len(names) == 2)
        )
    for model, changes in _PAIRS:
        names = ("input_ids", "decoder_input_ids")
        yield Architecture(model, "pair", partial(_transformers, model, names, changes), partial(_pair, 64))
    for model, size in _VISION:
        names = ("pixel_values",)
        yield Architecture(
            model, "vision", partial(_transformers, model, names, {"image_size": size}), partial(_pixels, size)
        )
    for model in _SPEECH:
        yield Architecture(model, "speech", partial(_transformers, model, ("input_values",), {}), partial(_wave, 16000))
    for name, layers, known, length in (
        ("decode_llama_1b", 22, 1024, 1),
        ("decode_llama_2_layers", 2, 1024, 1),
        ("prefill_llama_2_layers", 2, 0, 512),
    ):
        yield Architecture(name, "cache", partial(_decoder, layers), partial(_cached, layers, known, length))
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        for both in (False, True):
            name = f"{'bi' if both else ''}{kind.__name__.lower()}"
            yield Architecture(name, "recurrent", partial(_Recurrent, kind, both), _sequence)


def _by_hand() -> Iterator[Architecture]:
    sys.path.insert(0, str(Path(__file__).parent))
    from handmade import NETWORKS

    for name, network in NETWORKS.items():
        yield Architecture(name, "handmade", network.build, network.inputs)


ARCHITECTURES: Mapping[str, Architecture] = {a.name: a for a in _all()}
HANDMADE: Mapping[str, Architecture] = {a.name: a for a in _by_hand()}


def named(name: str) -> Architecture:
    """Returns a network of the list, a hand-written one, or any other of a library.

    timm.NAME.SIZE, torchvision.NAME.SIZE: SIZE of square images, in pixels.
    transformers.MODEL.SIZE: with two layers; SIZE is the number of tokens, samples or spectra, or the size of images, and
    transformers.MODEL.TOKENS.SIZE a model of texts and images.
    """
    source, _, rest = name.partition(".")
    network, *sizes = rest.rsplit(".", 2 if source == "transformers" and rest.count(".") == 2 else 1)
    if source == "timm":
        return Architecture(name, source, partial(_timm, network), partial(_image, int(sizes[0])))
    if source == "torchvision":
        return Architecture(name, source, partial(_torchvision, network), partial(_image, int(sizes[0])))
    if source == "transformers":
        inputs = partial(_arguments, network, tuple(int(size) for size in sizes))
        changes = {"image_size": int(sizes[-1])}
        return Architecture(name, source, partial(_transformers, network, tuple(inputs(1)), changes), inputs)
    return ARCHITECTURES.get(name) or HANDMADE[name]
