"""Hand-written networks for audio, text and other sequences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import Network, below, heads, inputs, joined, normal, normed, perceptron


class WaveNet(nn.Module):
    """WaveNet: gated causal convolutions with doubling dilation, whose residuals are summed."""

    def __init__(self, channels: int = 32, layers: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, channels, 1)
        self.dilations = [2**k for k in range(layers)]
        self.gated = nn.ModuleList(nn.Conv1d(channels, 2 * channels, 2, dilation=d) for d in self.dilations)
        self.residual = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in self.dilations)
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(channels, 64, 1), nn.ReLU(), nn.Conv1d(64, 256, 1))

    def forward(self, sound: Tensor) -> Any:
        values = self.stem(sound)
        skipped = torch.zeros_like(values)
        for dilation, gated, residual in zip(self.dilations, self.gated, self.residual, strict=True):
            signal, gate = gated(F.pad(values, (dilation, 0))).chunk(2, 1)
            added = residual(torch.tanh(signal) * torch.sigmoid(gate))
            skipped, values = skipped + added, values + added
        return self.head(skipped)


class TCN(nn.Module):
    """A temporal convolutional network: residual convolutions with doubling dilation, and a mean over time."""

    def __init__(self, channels: int = 64) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(channels if k else 16, channels, 3, padding=2**k, dilation=2**k),
                nn.BatchNorm1d(channels),
                nn.PReLU(),
                nn.Conv1d(channels, channels, 1),
            )
            for k in range(6)
        )

    def forward(self, series: Tensor) -> Any:
        series = self.layers[0](series)
        for layer in self.layers[1:]:
            series = series + layer(series)
        return series.mean(-1)


class Demucs(nn.Module):
    """Demucs: an audio autoencoder with gated convolutions, skips and an LSTM in the middle."""

    def __init__(self) -> None:
        super().__init__()
        widths = ((2, 32), (32, 64), (64, 128))
        self.encoders = nn.ModuleList(
            nn.Sequential(nn.Conv1d(a, b, 8, 4, 2), nn.ReLU(), nn.Conv1d(b, 2 * b, 1), nn.GLU(1)) for a, b in widths
        )
        self.cells = nn.LSTM(128, 128, 1, bidirectional=True, batch_first=True)
        self.joined = nn.Linear(256, 128)
        self.decoders = nn.ModuleList(
            nn.Sequential(nn.Conv1d(b, 2 * b, 1), nn.GLU(1), nn.ConvTranspose1d(b, a, 8, 4, 2))
            for a, b in reversed(widths)
        )

    def forward(self, sound: Tensor) -> Any:
        kept = []
        for encoder in self.encoders:
            sound = encoder(sound)
            kept.append(sound)
        sound = self.joined(self.cells(sound.transpose(1, 2))[0]).transpose(1, 2)
        for decoder in self.decoders:
            sound = decoder(sound + kept.pop())
        return sound


class Conformer(nn.Module):
    """A Conformer block: attention and a depthwise convolution between two half-step MLPs."""

    def __init__(self, width: int = 144, count: int = 4) -> None:
        super().__init__()
        self.before, self.after = (
            nn.Sequential(nn.LayerNorm(width), *perceptron(width, 4 * width, width, activation=nn.SiLU))
            for _ in range(2)
        )
        self.attention_norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, count, batch_first=True)
        self.convolution_norm = nn.LayerNorm(width)
        self.convolution = nn.Sequential(
            nn.Conv1d(width, 2 * width, 1),
            nn.GLU(1),
            nn.Conv1d(width, width, 31, padding=15, groups=width),
            nn.BatchNorm1d(width),
            nn.SiLU(),
            nn.Conv1d(width, width, 1),
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, frames: Tensor) -> Any:
        frames = frames + 0.5 * self.before(frames)
        queries = self.attention_norm(frames)
        frames = frames + self.attention(queries, queries, queries, need_weights=False)[0]
        frames = frames + self.convolution(self.convolution_norm(frames).transpose(1, 2)).transpose(1, 2)
        return self.norm(frames + 0.5 * self.after(frames))


def conformer() -> nn.Module:
    """Returns two Conformer blocks."""
    return nn.Sequential(Conformer(), Conformer())


def quartznet() -> nn.Module:
    """Returns a QuartzNet: long separable convolutions over audio frames."""
    layers: list[nn.Module] = []
    for channels in (64, 128, 128, 128, 128):
        layers += [nn.Conv1d(channels, channels, 33, padding=16, groups=channels), nn.Conv1d(channels, 128, 1)]
        layers += [nn.BatchNorm1d(128), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv1d(128, 29, 1))


def vocoder() -> nn.Module:
    """Returns a vocoder like HiFi-GAN's: transposed convolutions from spectrogram frames to audio."""
    layers: list[nn.Module] = [nn.Conv1d(80, 128, 7, padding=3)]
    for channels, outputs, stride in ((128, 64, 8), (64, 32, 8), (32, 16, 4)):
        layers += [nn.LeakyReLU(0.1), nn.ConvTranspose1d(channels, outputs, 2 * stride, stride, stride // 2)]
        layers += [nn.LeakyReLU(0.1), nn.Conv1d(outputs, outputs, 3, padding=3, dilation=3)]
    return nn.Sequential(*layers, nn.LeakyReLU(0.1), nn.Conv1d(16, 1, 7, padding=3), nn.Tanh())


class MelSpectrum(nn.Module):
    """A log-mel spectrogram, with the Fourier transform as a convolution of stride 64."""

    def __init__(self) -> None:
        super().__init__()
        self.waves, self.mel = nn.Parameter(torch.randn(258, 1, 256)), nn.Parameter(torch.randn(40, 129).abs())

    def forward(self, sound: Tensor) -> Any:
        real, imaginary = F.conv1d(F.pad(sound, (128, 128), mode="reflect"), self.waves, stride=64).chunk(2, 1)
        return (self.mel @ (real**2 + imaginary**2)).clamp(min=1e-5).log()


class StatsPool(nn.Module):
    """Speaker x-vectors: convolutions over frames, then mean and standard deviation over time."""

    def __init__(self) -> None:
        super().__init__()
        self.frames = nn.Sequential(
            nn.Conv1d(24, 128, 5),
            nn.ReLU(),
            nn.BatchNorm1d(128),
            nn.Conv1d(128, 128, 3, dilation=2),
            nn.ReLU(),
            nn.BatchNorm1d(128),
            nn.Conv1d(128, 384, 1),
            nn.ReLU(),
        )
        self.head = nn.Linear(768, 128)

    def forward(self, frames: Tensor) -> Any:
        values = self.frames(frames)
        return self.head(torch.cat([values.mean(-1), values.std(-1)], 1))


def squeezeformer() -> nn.Module:
    """Returns the stem of Squeezeformer: strided convolutions, one of them depthwise, over a spectrogram."""
    first = [nn.Conv2d(1, 32, 3, 2), nn.ReLU()]
    return nn.Sequential(*first, nn.Conv2d(32, 32, 3, 2, groups=32), nn.Conv2d(32, 32, 1), nn.ReLU())


class FourierConvolution(nn.Module):
    """A convolution as long as the sequence, as a product of Fourier transforms."""

    def __init__(self) -> None:
        super().__init__()
        self.spectrum = nn.Parameter(torch.randn(16, 129, 2))

    def forward(self, series: Tensor) -> Any:
        product = torch.fft.rfft(series, dim=-1) * torch.view_as_complex(self.spectrum)
        return torch.fft.irfft(product, n=256, dim=-1)


class NBeats(nn.Module):
    """N-BEATS: each block forecasts, and subtracts what it explains from the next one's input."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(perceptron(96, 256, 256, 96 + 24) for _ in range(6))

    def forward(self, history: Tensor) -> Any:
        forecasts = []
        for block in self.blocks:
            explained, forecast = block(history).split([96, 24], 1)
            history = history - explained
            forecasts.append(forecast)
        return sum(forecasts)


class RecurrentCell(nn.Module):
    """A GRU cell in a Python loop, unrolled by the export."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(40, 64), nn.Linear(64, 10)

    def forward(self, series: Tensor) -> Any:
        state, states = series.new_zeros(series.shape[0], 64), []
        for step in series.unbind(1):
            state = self.cell(step, state)
            states.append(state)
        return self.head(torch.stack(states, 1))


class RecurrentText(nn.Module):
    """A language model of two GRU layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(2000, 96), nn.Linear(160, 2000)
        self.cells = nn.GRU(96, 160, 2, batch_first=True)

    def forward(self, ids: Tensor) -> Any:
        return self.head(self.cells(self.embedding(ids))[0])


class AttentiveLSTM(nn.Module):
    """A text classifier: a bidirectional LSTM and attention over its states."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(3000, 64), nn.Linear(128, 5)
        self.cells = nn.LSTM(64, 64, 1, bidirectional=True, batch_first=True)
        self.scores = perceptron(128, 32, 1, activation=nn.Tanh)

    def forward(self, ids: Tensor) -> Any:
        states = self.cells(self.embedding(ids))[0]
        return self.head((states * self.scores(states).softmax(1)).sum(1))


class TextCNN(nn.Module):
    """A text classifier: convolutions of three lengths and their maxima."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(3000, 100), nn.Linear(300, 4)
        self.convolutions = nn.ModuleList(nn.Conv1d(100, 100, kernel) for kernel in (3, 4, 5))

    def forward(self, ids: Tensor) -> Any:
        words = self.embedding(ids).transpose(1, 2)
        return self.head(torch.cat([F.relu(c(words)).max(-1).values for c in self.convolutions], 1))


class CRNN(nn.Module):
    """CRNN, which reads text lines: convolutions down to one row, then bidirectional LSTMs over it."""

    def __init__(self) -> None:
        super().__init__()
        self.columns = nn.Sequential(
            normed(1, 32),
            nn.MaxPool2d(2),
            normed(32, 64),
            nn.MaxPool2d(2),
            normed(64, 128),
            nn.MaxPool2d((2, 1)),
            normed(128, 128),
            nn.AvgPool2d((4, 1)),
        )
        self.cells = nn.LSTM(128, 96, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(192, 80)

    def forward(self, image: Tensor) -> Any:
        columns = self.columns(image).squeeze(2).transpose(1, 2)
        return self.head(self.cells(columns)[0]).log_softmax(-1)


class RelativeText(nn.Module):
    """T5's encoder with one table of relative positions for all layers, RMS norms and gated MLPs."""

    def __init__(self, width: int = 256, count: int = 8, layers: int = 3) -> None:
        super().__init__()
        self.count = count
        self.embedding, self.bias = nn.Embedding(1000, width), nn.Embedding(32, count)
        self.weight = nn.Parameter(torch.ones(width))
        self.attention = nn.ModuleList(nn.Linear(width, 3 * width, bias=False) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        self.gate = nn.ModuleList(nn.Linear(width, 512, bias=False) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(width, 512, bias=False) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(512, width, bias=False) for _ in range(layers))

    def norm(self, values: Tensor) -> Tensor:
        return values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight

    def forward(self, ids: Tensor) -> Any:
        values = self.embedding(ids)
        positions = torch.arange(ids.shape[1], device=ids.device)
        distance = (positions[None] - positions[:, None]).abs().clamp(max=31)
        bias = self.bias(distance).permute(2, 0, 1)[None]
        for attention, out, gate, up, down in zip(self.attention, self.out, self.gate, self.up, self.down, strict=True):
            query, key, value = (heads(part, self.count) for part in attention(self.norm(values)).chunk(3, -1))
            values = values + out(joined(torch.softmax(query @ key.transpose(-1, -2) + bias, -1) @ value))
            normal = self.norm(values)
            values = values + down(F.gelu(gate(normal), approximate="tanh") * up(normal))
        return values


class Mamba(nn.Module):
    """A Mamba block: a short causal convolution and a selective scan, unrolled by the export."""

    def __init__(self, width: int = 64, states: int = 8) -> None:
        super().__init__()
        inner = 2 * width
        self.parts = [states, states, inner]
        self.rise, self.out = nn.Linear(width, 2 * inner), nn.Linear(inner, width)
        self.convolution = nn.Conv1d(inner, inner, 4, padding=3, groups=inner)
        self.selection, self.decay = nn.Linear(inner, sum(self.parts)), nn.Parameter(torch.rand(inner, states))

    def forward(self, tokens: Tensor) -> Any:
        values, gate = self.rise(tokens).chunk(2, -1)
        values = F.silu(self.convolution(values.transpose(1, 2))[..., : tokens.shape[1]].transpose(1, 2))
        write, read, step = self.selection(values).split(self.parts, -1)
        step = F.softplus(step)
        kept = torch.exp(-step[..., None] * self.decay)
        added = (step * values)[..., None] * write[:, :, None]
        state, results = torch.zeros_like(added[:, 0]), []
        for t in range(tokens.shape[1]):
            state = kept[:, t] * state + added[:, t]
            results.append((state * read[:, t, None]).sum(-1))
        return self.out(torch.stack(results, 1) * F.silu(gate))


class FourierMixer(nn.Module):
    """FNet with its Fourier transforms as products with matrices of cosines and sines."""

    cosines: Tensor
    sines: Tensor

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        positions = torch.arange(128.0)
        angles = 2 * math.pi * positions[:, None] * positions / 128
        self.register_buffer("cosines", torch.cos(angles))
        self.register_buffer("sines", torch.sin(angles))
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), *perceptron(width, 256, width, activation=nn.GELU)) for _ in range(4)
        )

    def forward(self, tokens: Tensor) -> Any:
        for layer in self.layers:
            real = self.cosines @ tokens @ self.cosines - self.sines @ tokens @ self.sines
            tokens = tokens + real / 128
            tokens = tokens + layer(tokens)
        return tokens


class Linformer(nn.Module):
    """Linformer: keys and values projected along the positions, and products associated from the right."""

    def __init__(self, width: int = 192, count: int = 6) -> None:
        super().__init__()
        self.count = count
        self.query, self.pair = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.shorter = nn.Linear(512, 64)

    def forward(self, tokens: Tensor) -> Any:
        shorter = self.shorter(tokens.transpose(1, 2)).transpose(1, 2)
        key, value = (heads(part, self.count) for part in self.pair(shorter).chunk(2, -1))
        query = heads(self.query(tokens), self.count).softmax(-1)
        return joined(query @ (key.softmax(-2).transpose(-1, -2) @ value))


class WindowedAttention(nn.Module):
    """Longformer's attention: blocks of 32 queries over 96 keys around them."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Linear(64, 192)

    def forward(self, tokens: Tensor) -> Any:
        query, key, value = self.attention(tokens).chunk(3, -1)
        key, value = (F.pad(v, (0, 0, 32, 32)).unfold(1, 96, 32).permute(0, 1, 3, 2) for v in (key, value))
        scores = query.unflatten(1, (16, 32)) @ key.transpose(-1, -2) / 8
        return (scores.softmax(-1) @ value).flatten(1, 2)


class RelativeAttention(nn.Module):
    """Transformer-XL's attention: relative position scores shifted by padding and reshaping."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.distance = nn.Linear(256, 768), nn.Linear(256, 256)
        self.positions = nn.Parameter(torch.randn(1, 128, 256))
        self.content, self.position = nn.Parameter(torch.randn(4, 1, 64)), nn.Parameter(torch.randn(4, 1, 64))

    def forward(self, tokens: Tensor) -> Any:
        query, key, value = (heads(part, 4) for part in self.attention(tokens).chunk(3, -1))
        distance = heads(self.distance(self.positions), 4)
        scores = (query + self.position) @ distance.transpose(-1, -2)
        scores = F.pad(scores, (1, 0)).reshape(-1, 4, 129, 64)[:, :, 1:].reshape(-1, 4, 64, 128)[..., :64]
        scores = (query + self.content) @ key.transpose(-1, -2) + scores
        return joined((scores / 8).softmax(-1) @ value)


class Bottleneck(nn.Module):
    """A MobileBERT layer: attention and four MLPs of narrow width, and scales instead of norms."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(1 + 0.1 * torch.randn(128)), nn.Parameter(torch.randn(128))
        self.query, self.key, self.value = nn.Linear(128, 128), nn.Linear(128, 128), nn.Linear(512, 128)
        self.out = nn.Linear(128, 128)
        self.perceptrons = nn.ModuleList(perceptron(128, 512, 128) for _ in range(4))

    def forward(self, hidden: Tensor, tokens: Tensor) -> Any:
        query, key, value = (heads(v, 4) for v in (self.query(hidden), self.key(hidden), self.value(tokens)))
        attended = joined(F.scaled_dot_product_attention(query, key, value))
        hidden = (hidden + self.out(attended)) * self.scale + self.shift
        for layer in self.perceptrons:
            hidden = (hidden + layer(hidden)) * self.scale + self.shift
        return hidden


class MobileBert(nn.Module):
    """MobileBERT's encoder: two narrow layers whose values are the wide tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.layers = nn.Linear(512, 128), nn.ModuleList([Bottleneck(), Bottleneck()])

    def forward(self, tokens: Tensor) -> Any:
        hidden = self.narrow(tokens)
        for layer in self.layers:
            hidden = layer(hidden, tokens)
        return hidden


class Perceiver(nn.Module):
    """Perceiver's first attention: a few learned queries over a long input."""

    def __init__(self) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(32, 128))
        self.query, self.key, self.value = nn.Linear(128, 128), nn.Linear(64, 128), nn.Linear(64, 128)
        self.head = nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 10))

    def forward(self, values: Tensor) -> Any:
        query = self.query(self.latents).expand(values.shape[0], 1, 32, 128)
        attended = F.scaled_dot_product_attention(query, self.key(values)[:, None], self.value(values)[:, None])
        return self.head(attended.squeeze(1))


class DecoderStep(nn.Module):
    """One token through attention whose keys and values are a cache, which is returned extended."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.out = nn.Linear(512, 1536), nn.Linear(512, 512)

    def forward(self, token: Tensor, keys: Tensor, values: Tensor) -> Any:
        query, key, value = (heads(part, 8) for part in self.attention(token).chunk(3, -1))
        keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
        attended = (query @ keys.transpose(-1, -2) / 8).softmax(-1) @ values
        return self.out(joined(attended)), keys, values


NETWORKS: Mapping[str, Network] = {
    "wavenet": Network(WaveNet, inputs(sound=normal(1, 1, 2000))),
    "tcn": Network(TCN, inputs(series=normal(1, 16, 800))),
    "demucs": Network(Demucs, inputs(sound=normal(1, 2, 4096))),
    "conformer": Network(conformer, inputs(frames=normal(1, 150, 144))),
    "quartz": Network(quartznet, inputs(frames=normal(1, 64, 300))),
    "vocoder": Network(vocoder, inputs(frames=normal(1, 80, 32))),
    "stftmel": Network(MelSpectrum, inputs(sound=normal(1, 1, 8000))),
    "statspool": Network(StatsPool, inputs(frames=normal(2, 24, 200))),
    "squeezeformer": Network(squeezeformer, inputs(spectrum=normal(1, 1, 400, 80))),
    "fftconv": Network(FourierConvolution, inputs(series=normal(2, 16, 256))),
    "nbeats": Network(NBeats, inputs(history=normal(32, 96))),
    "rnn_cell": Network(RecurrentCell, inputs(series=normal(8, 20, 40))),
    "gru_lm": Network(RecurrentText, inputs(ids=below(2000, 2, 30))),
    "bilstm_att": Network(AttentiveLSTM, inputs(ids=below(3000, 8, 40))),
    "textcnn": Network(TextCNN, inputs(ids=below(3000, 4, 60))),
    "crnn": Network(CRNN, inputs(image=normal(1, 1, 32, 160))),
    "t5ish": Network(RelativeText, inputs(ids=below(1000, 1, 96))),
    "mamba": Network(Mamba, inputs(tokens=normal(1, 48, 64))),
    "fnet": Network(FourierMixer, inputs(tokens=normal(1, 128, 128))),
    "linformer": Network(Linformer, inputs(tokens=normal(2, 512, 192))),
    "longwin": Network(WindowedAttention, inputs(tokens=normal(1, 512, 64))),
    "xl_rel": Network(RelativeAttention, inputs(tokens=normal(1, 64, 256))),
    "mobilebert": Network(MobileBert, inputs(tokens=normal(1, 128, 512))),
    "perceiver": Network(Perceiver, inputs(values=normal(2, 2000, 64))),
    "gpt_step": Network(
        DecoderStep, inputs(token=normal(1, 1, 512), keys=normal(1, 8, 255, 64), values=normal(1, 8, 255, 64))
    ),
}
