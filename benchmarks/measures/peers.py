"""Other captioners that people take: BLIP-base and ViT-GPT2 of transformers, with random weights.

Their speed does not depend on the weights, their captions do: nothing is said of quality here. They say as
many words as ours.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from measures.bench import SEARCHES, Bench, Skip, Table, ratio
from measures.photos import pixels

BATCHES = (1, 8)


def measure(bench: Bench) -> list[Table]:
    if not (bench.has("transformers", "BLIP and ViT-GPT2") and bench.has("torch", "BLIP and ViT-GPT2")):
        raise Skip("transformers or PyTorch is not installed")
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is to be downloaded
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(bench.threads or torch.get_num_threads())
    captioner = bench.captioner()
    batch = pixels(captioner)
    words = round(float(np.mean([len(caption.words) for caption in captioner.caption_pixels(batch)])))
    batches, searches = (BATCHES[:1], ["greedy"]) if bench.quick else (BATCHES, list(SEARCHES))
    rows = []
    for search in searches:
        beams = SEARCHES[search].beam_size or 1
        ours = {
            size: bench.median_ms(lambda n=size, o=SEARCHES[search]: captioner.caption_pixels(batch[:n], o))
            for size in batches
        }
        rows.append(_row(f"captioner, {captioner.precision}", search, _parameters(captioner), ours, ours))
        for name, build in {"BLIP-base": _blip, "ViT-GPT2": _vit_gpt2}.items():
            model, side = build(bench.quick)
            shown = torch.randn(max(batches), 3, side, side)
            limits = {
                "min_new_tokens": words,
                "max_new_tokens": words,
                "num_beams": beams,
                "do_sample": False,
            }

            def caption(size: int, model: Any = model, shown: Any = shown, limits: Any = limits) -> None:
                with torch.inference_mode():
                    model.generate(pixel_values=shown[:size], **limits)

            times = {size: bench.median_ms(lambda size=size: caption(size)) for size in batches}
            rows.append(_row(name, search, sum(p.numel() for p in model.parameters()), times, ours))
    note = f"Random weights, {words} words or tokens each: speed only. Without reading photos."
    return [Table("Against larger captioners in transformers", rows, note)]


def _parameters(captioner: Any) -> int | None:
    return captioner.bundle.manifest.get("parameters")


def _row(
    name: str, search: str, parameters: int | None, times: dict[int, float], ours: dict[int, float]
) -> dict[str, Any]:
    row: dict[str, Any] = {"model": name, "search": search}
    row["parameters, millions"] = round(parameters / 1e6, 1) if parameters else None
    for size, ms in times.items():
        row[f"batch {size}, ms a photo"] = ms / size
        row[f"captioner is faster, batch {size}"] = ratio(ms, ours[size])
    return row


def _blip(quick: bool) -> tuple[Any, int]:
    from transformers import BlipConfig, BlipForConditionalGeneration

    small = {"num_hidden_layers": 1} if quick else {}
    config = BlipConfig(vision_config={"image_size": 384, **small}, text_config={**small})
    return BlipForConditionalGeneration(config).eval(), 384


def _vit_gpt2(quick: bool) -> tuple[Any, int]:
    from transformers import GPT2Config, VisionEncoderDecoderConfig, VisionEncoderDecoderModel, ViTConfig

    layers = {"num_hidden_layers": 1} if quick else {}
    vision = ViTConfig(image_size=224, **layers)
    text = GPT2Config(is_decoder=True, add_cross_attention=True, **({"n_layer": 1} if quick else {}))
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(vision, text)
    model = VisionEncoderDecoderModel(config).eval()
    for settings in (model.config, model.generation_config):
        settings.decoder_start_token_id, settings.pad_token_id = text.bos_token_id, text.eos_token_id
    return model, 224
