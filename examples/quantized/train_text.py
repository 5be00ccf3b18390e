"""Trains the causal language model that `measure.py` quantizes, and writes language.onnx beside this file.

Two transformer layers over characters of the standard library's docstrings; reads 128 of them and returns the logits of each
next one.  Needs torch and onnxscript (`pip install torch onnxscript`); takes as many minutes as its argument says (default:
30).
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import torch
from docstrings import WINDOW, windows
from export import export
from torch import nn
from torch.nn import functional

HERE = Path(__file__).parent
WIDTH, HEADS, LAYERS, BATCH = 128, 4, 2, 32
RATE = 3e-3


class Layer(nn.Module):
    """Causal attention, and an MLP with GELU, each with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.joined, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        n, length, _ = x.shape
        parts = self.joined(self.before(x)).reshape(n, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, WIDTH))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Language(nn.Module):
    """Characters int64 [n, WINDOW] -> logits [n, WINDOW, 128]."""

    def __init__(self) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(128, WIDTH), nn.Parameter(torch.zeros(WINDOW, WIDTH))
        nn.init.normal_(self.characters.weight, std=0.02)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.last, self.logits = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 128)

    def forward(self, text):
        x = self.characters(text) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.logits(self.last(x))


def loss_of(model, rows):
    return functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def main(minutes: float) -> None:
    torch.manual_seed(0)
    text = torch.from_numpy(windows(held_out=False)).flatten()
    held_out = torch.from_numpy(windows(held_out=True, most=128))
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.05, betas=(0.9, 0.98))
    begin, step = time.monotonic(), 0
    while (share := (time.monotonic() - begin) / (60 * minutes)) < 1:
        rate = RATE * min(1, (step + 1) / 200) * (0.02 + 0.98 * (1 + math.cos(math.pi * share)) / 2)
        for group in optimizer.param_groups:
            group["lr"] = rate
        starts = torch.randint(len(text) - WINDOW - 1, (BATCH,))
        rows = torch.stack([text[s : s + WINDOW + 1] for s in starts])
        loss = loss_of(model, rows)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 200 == 0:
            with torch.no_grad():
                print(
                    f"step {step}  loss {loss:.3f}  held out: perplexity {loss_of(model, held_out).exp():.3f}",
                    flush=True,
                )
    model.eval()
    export(model, held_out[:2, :-1], HERE / "language.onnx", "text")
    with torch.no_grad():
        print(f"{step} steps, held out: perplexity {loss_of(model, held_out).exp():.3f}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 30)
