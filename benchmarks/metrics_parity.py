#!/usr/bin/env python3
"""Compare `captioner.metrics` with pycocoevalcap on the same captions.

    pip install '.[metrics]'        # and a Java runtime on PATH
    metrics_parity.py [CAPTIONS] REFERENCES [--split val]

Without CAPTIONS, the first human caption of each image is scored against its others. Prints how many captions
the tokenizers split differently and, for each metric, both scores (times 100), their difference, and the
largest difference for one image. The last line is METEOR as it is computed without the data of pycocoevalcap.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any

import numpy as np
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.meteor.meteor import Meteor as JavaMeteor
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from captioner.metrics import Meteor, tokenize
from captioner.metrics.bleu import bleu, bleu_statistics
from captioner.metrics.captions import read_captions, references_by_image
from captioner.metrics.cider import CorpusCider
from captioner.metrics.meteor import meteor_score
from captioner.metrics.meteor.resources import load_stemmer
from captioner.metrics.rouge import rouge_l
from captioner.references import read_references

Captions = dict[str, list[str]]
"""By image; the candidate is a list of one."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("captions", nargs="?")
    parser.add_argument("references")
    parser.add_argument("--split")
    args = parser.parse_args()
    texts, their_texts = [], []
    for captions in _read(args):
        texts.append({key: [" ".join(tokenize(text)) for text in captions[key]] for key in captions})
        their_texts.append(_tokenize_theirs(captions))
    differing, total = _count_differences(texts, their_texts)
    print(f"{differing} of {total} captions are split differently")
    print(f"{'':24}{'captioner':>12}{'pycocoevalcap':>15}{'difference':>12}{'largest':>10}")
    theirs = _score_theirs(*their_texts)
    for name, (score, per_image) in _score_ours(*texts).items():
        their_score, their_images = theirs[name.partition(" (")[0]]
        largest = np.abs(np.asarray(per_image) - their_images).max()
        print(
            f"{name:24}{100 * score:12.4f}{100 * their_score:15.4f}{100 * (score - their_score):12.1e}"
            f"{100 * largest:10.1e}"
        )
    return 0


def _read(args: argparse.Namespace) -> tuple[Captions, Captions]:
    """Candidates and references."""
    images = read_references(args.references, args.split)
    if args.captions is None:
        several = [image for image in images if len(image.captions) > 1]
        candidates = {image.key: [image.captions[0]] for image in several}
        return candidates, {image.key: list(image.captions[1:]) for image in several}
    said = read_captions(args.captions, images)
    references = {key: list(captions) for key, captions in references_by_image(images).items()}
    return {key: [said[key]] for key in references}, references


def _tokenize_theirs(captions: Captions) -> Captions:
    records = {key: [{"caption": text} for text in texts] for key, texts in captions.items()}
    with contextlib.redirect_stdout(sys.stderr):
        return PTBTokenizer().tokenize(records)


def _count_differences(ours: list[Captions], theirs: list[Captions]) -> tuple[int, int]:
    pairs = [
        pair
        for captions, others in zip(ours, theirs, strict=True)
        for key in captions
        for pair in zip(captions[key], others[key], strict=True)
    ]
    return sum(text != other for text, other in pairs), len(pairs)


def _score_theirs(said: Captions, truth: Captions) -> dict[str, tuple[float, np.ndarray]]:
    bleu_scores, bleu_images = Bleu(4).compute_score(truth, said, verbose=0)
    scores: dict[str, tuple[Any, Any]] = {
        f"BLEU-{n + 1}": pair for n, pair in enumerate(zip(bleu_scores, bleu_images, strict=True))
    }
    scores["ROUGE-L"] = Rouge().compute_score(truth, said)
    scores["CIDEr-D"] = Cider().compute_score(truth, said)
    scores["METEOR 1.5"] = JavaMeteor().compute_score(truth, said)
    return {name: (float(score), np.asarray(images)) for name, (score, images) in scores.items()}


def _score_ours(said: Captions, truth: Captions) -> dict[str, tuple[float, np.ndarray]]:
    candidates = [texts[0].split() for texts in said.values()]
    references = [[text.split() for text in texts] for texts in truth.values()]
    statistics = np.stack(list(map(bleu_statistics, candidates, references)))
    corpus, per_image = bleu(statistics.sum(axis=0)), bleu(statistics)
    scores = {f"BLEU-{n + 1}": (float(corpus[n]), per_image[:, n]) for n in range(4)}
    rouge = np.array(list(map(rouge_l, candidates, references)))
    cider = CorpusCider(references).scores(range(len(candidates)), candidates)
    scores |= {"ROUGE-L": (rouge.mean(), rouge), "CIDEr-D": (cider.mean(), cider)}
    variants = {"METEOR 1.5": Meteor.load(), "METEOR 1.5 (exact+stem)": Meteor(stemmer=load_stemmer())}
    for name, meteor in variants.items():
        sums = meteor.statistics(candidates, references)
        scores[name] = (float(meteor_score(sums.sum(axis=0))), meteor_score(sums))
    return scores


if __name__ == "__main__":
    sys.exit(main())
