"""Search, on a language whose maps tell what they were looked at after."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.language import END, FIRST_WORD, Language, Speaker

from captioner.model.search import search, search_each, stream
from captioner.model.search.avoided import Avoided
from captioner.model.search.history import Hypothesis
from captioner.options import CaptionOptions


def options(beam: int, words: int = 5, **others: object) -> CaptionOptions:
    values = {"length_normalization": 0.0, "no_repeat_ngram": 0, **others}
    return CaptionOptions(beam_size=beam, max_words=words, **values)  # type: ignore[arg-type]


def score(found: Hypothesis, alpha: float = 0.0) -> float:
    return found.log_prob / (len(found.tokens) + 1) ** alpha


def check(found: Hypothesis, language: Language, image: int) -> None:
    """Each word has its own probability and its own map, whatever beams it went through."""
    expected = language.hypothesis(image, found.tokens)
    assert found.log_probs == expected.log_probs
    assert found.log_prob == pytest.approx(sum(expected.log_probs))
    assert len(found.attention) == len(found.tokens)
    for ours, theirs in zip(found.attention, expected.attention, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("beam", [1, 2, 3, 5, 16])
@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_words_keep_their_probabilities_and_maps_when_beams_are_reordered(beam: int, alpha: float) -> None:
    language = Language(words=6, peak=0.7)
    images = list(range(20))
    asked = options(beam, 8, alternatives=beam - 1, length_normalization=alpha)
    moved = 0
    speaker = Speaker(language, images)
    plain = speaker.reorder
    identity = np.arange(beam)

    def watched(state: list, parents: np.ndarray) -> list:
        nonlocal moved
        moved += int((parents != identity).sum())
        return plain(state, parents)

    speaker.reorder = watched  # type: ignore[method-assign]
    for image, several in zip(images, search(speaker, len(images), asked), strict=True):
        for found in several:
            check(found, language, image)
    assert beam == 1 or moved > 20


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("bias", [-1.0, 0.0, 1.5])
def test_a_wide_beam_finds_the_best_of_all_captions(alpha: float, bias: float) -> None:
    """2 words and up to 3 of them: no more than 8 hypotheses are ever alive."""
    language = Language(words=2, end_bias=bias)
    images = list(range(12))
    asked = options(16, 3, alternatives=5, length_normalization=alpha)
    for image, several in zip(images, search(Speaker(language, images), 12, asked), strict=True):
        # At the word limit the end token is the only choice, and counts with its own probability.
        scores = {h.tokens: score(h, alpha) for h in language.all_captions(image, 3)}
        pool = set(scores)
        while (likeliest_end(language, image, best := max(pool, key=scores.__getitem__), 3)) != best:
            pool.remove(best)  # and the part of it that stays is there already
        assert [h.tokens for h in several] == sorted(pool, key=scores.__getitem__, reverse=True)[:6]


def likeliest_end(language: Language, image: int, words: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """A caption that reaches the limit is cut where its end was most likely."""
    if len(words) < limit:
        return words
    parts = [words[:length] for length in range(limit, 0, -1)]
    return max(parts, key=lambda part: float(language.log_probs(image, part)[END]))


def test_a_caption_that_reaches_the_limit_is_cut_where_its_end_was_likeliest() -> None:
    language = Language(words=5, end_bias=-6)
    images = list(range(20))
    shorter = 0
    for image, [best] in zip(images, search(Speaker(language, images), 20, options(3, 8)), strict=True):
        check(best, language, image)
        shorter += len(best.tokens) < 8
        ends = [
            float(language.log_probs(image, best.tokens[:n])[END]) for n in range(1, len(best.tokens) + 1)
        ]
        assert max(ends) == ends[-1] == best.log_probs[-1]
    assert shorter > 10


@pytest.mark.parametrize("repeats", [0, 1, 2, 3])
def test_greedy_search_takes_the_likeliest_each_time_and_streams(repeats: int) -> None:
    language = Language(words=5, end_bias=-0.5)
    for image in range(15):
        asked = options(1, 9, no_repeat_ngram=repeats)
        [[found]] = search(Speaker(language, [image]), 1, asked)
        check(found, language, image)
        streamed = list(stream(Speaker(language, [image]), asked))
        assert [token for token, _, _ in streamed] == [*found.tokens, END]
        assert tuple(log_prob for _, log_prob, _ in streamed) == found.log_probs
        for (_, _, ours), theirs in zip(streamed, found.attention, strict=False):
            np.testing.assert_array_equal(ours, theirs)
        if not repeats:
            history: tuple[int, ...] = ()
            for token in found.tokens:
                likely = language.log_probs(image, history)
                choices = [*range(FIRST_WORD, language.size), *([END] if history else [])]
                assert token == max(choices, key=lambda choice: likely[choice])
                history = (*history, token)


def test_words_are_streamed_as_they_are_decoded() -> None:
    speaker = Speaker(Language(end_bias=-5), [0])
    words = stream(speaker, options(1, 9))
    next(words)
    assert speaker.steps == 1
    next(words)
    assert speaker.steps == 2


def test_length_normalisation_makes_captions_longer() -> None:
    language = Language(words=4, end_bias=0.5)
    images = list(range(20))
    lengths = []
    for alpha in (0.0, 0.7, 1.5):
        asked = options(4, 10, length_normalization=alpha)
        found = search(Speaker(language, images), 20, asked)
        lengths.append(np.mean([len(best.tokens) for [best] in found]))
    assert lengths[0] < lengths[1] < lengths[2]


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_several_hypotheses_are_sorted_and_distinct(alpha: float) -> None:
    images = list(range(10))
    asked = options(6, 6, alternatives=5, length_normalization=alpha)
    for several in search(Speaker(Language(words=8), images), 10, asked):
        assert len(several) == 6
        assert len({h.tokens for h in several}) == 6
        scores = [score(h, alpha) for h in several]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("beam", [1, 3])
def test_no_ngram_comes_twice(size: int, beam: int) -> None:
    language = Language(words=4, end_bias=-3)
    images = list(range(8))
    free = search(Speaker(language, images), 8, options(beam, 12))
    found = search(Speaker(language, images), 8, options(beam, 12, no_repeat_ngram=size))

    def repeats(tokens: tuple[int, ...]) -> bool:
        grams = [tokens[i : i + size] for i in range(len(tokens) - size + 1)]
        return len(grams) != len(set(grams))

    assert any(repeats(h[0].tokens) for h in free)
    for image, [best] in enumerate(found):
        assert not repeats(best.tokens)
        check(best, language, image)


PHRASES = [(FIRST_WORD, FIRST_WORD + 1), (FIRST_WORD + 2, FIRST_WORD + 2), (FIRST_WORD + 1,) * 3]


def says(found: Hypothesis, phrase: tuple[int, ...]) -> bool:
    size = len(phrase)
    return any(found.tokens[i : i + size] == phrase for i in range(len(found.tokens)))


def test_captions_do_not_contain_avoided_phrases() -> None:
    language = Language(words=3, end_bias=-1.5)
    images = list(range(20))
    asked = [options(5, 8, alternatives=3)] * 20
    free = search_each(Speaker(language, images), asked, [()] * 20)
    found = search_each(Speaker(language, images), asked, [()] * 20, avoided=Avoided(PHRASES))
    assert {phrase for several in free for phrase in PHRASES if says(several[0], phrase)} == {*PHRASES}
    for image, several in zip(images, found, strict=True):
        assert len(several) == 4
        for one in several:
            check(one, language, image)
            assert not any(says(one, phrase) for phrase in PHRASES)


def test_streamed_captions_do_not_contain_avoided_phrases() -> None:
    language = Language(words=3, end_bias=-3)
    for image in range(8):
        asked = options(1, 9)
        [[found]] = search_each(Speaker(language, [image]), [asked], [()], avoided=Avoided(PHRASES))
        assert not any(says(found, phrase) for phrase in PHRASES)
        streamed = list(stream(Speaker(language, [image]), asked, Avoided(PHRASES)))
        assert [token for token, _, _ in streamed] == [*found.tokens, END]


def test_a_word_that_must_be_there_completes_an_avoided_phrase_only_if_it_has_to() -> None:
    language, first, last = Language(words=2), FIRST_WORD, FIRST_WORD + 1
    after_any = Avoided([(first, last), (last, last)])
    for image in range(8):
        speaker, needs = Speaker(language, [image]), [[(first,), (last,)]]
        [[found]] = search_each(speaker, [options(8, 4)], needs, avoided=after_any)
        assert {first, last} <= set(found.tokens) and found.tokens[0] == last
        [[found]] = search_each(
            speaker, [options(8, 2)], needs, avoided=Avoided([(first, last), (last, first)])
        )
        assert set(found.tokens) == {first, last}  # no other caption of two words has both


def test_every_image_has_a_caption_even_if_nothing_would_end() -> None:
    images = list(range(6))
    language = Language(end_bias=-50)
    for beam, several in itertools.product((1, 4), (0, 3)):
        if several < beam:
            asked = options(beam, 7, alternatives=several)
            for image, found in enumerate(search(Speaker(language, images), 6, asked)):
                assert several <= len(found) <= several + 1
                assert {len(h.tokens) for h in found[1:]} <= {7}  # the best is cut where it may be
                for hypothesis in found:
                    check(hypothesis, language, image)


def test_a_caption_has_a_word_even_if_the_end_is_likeliest() -> None:
    for beam in (1, 3):
        for [best] in search(Speaker(Language(end_bias=50), [0, 1]), 2, options(beam)):
            assert len(best.tokens) == 1


@pytest.mark.parametrize("limit", [1, 2, 8])
def test_no_caption_is_longer_than_the_limit(limit: int) -> None:
    images = list(range(10))
    for found in search(Speaker(Language(end_bias=-1), images), 10, options(3, limit, alternatives=2)):
        assert all(1 <= len(h.tokens) <= limit for h in found)


def test_special_tokens_are_never_said() -> None:
    images = list(range(30))
    for found in search(Speaker(Language(words=1, end_bias=-3), images), 30, options(5, 6, alternatives=4)):
        assert all(token >= FIRST_WORD for h in found for token in h.tokens)


@pytest.mark.parametrize("beam", [1, 3])
def test_images_of_a_batch_do_not_touch_each_other(beam: int) -> None:
    language = Language(words=6, end_bias=0.3)
    asked = options(beam, 8, alternatives=beam - 1, length_normalization=0.6)
    images = list(range(9))
    together = search(Speaker(language, images), 9, asked)
    for image in images:
        [alone] = search(Speaker(language, [image]), 1, asked)
        assert [h.tokens for h in alone] == [h.tokens for h in together[image]]
        assert [h.log_probs for h in alone] == [h.log_probs for h in together[image]]


def test_the_search_stops_when_nothing_better_can_come() -> None:
    sure = Speaker(Language(words=4, end_bias=20), [0])
    search(sure, 1, options(3, 60))
    assert sure.steps < 10


def test_who_wants_the_best_alone_does_not_wait_for_others() -> None:
    steps = {}
    for others in (0, 2):
        steps[others] = 0
        for image in range(20):
            speaker = Speaker(Language(words=6, end_bias=1), [image])
            search(speaker, 1, options(3, 30, alternatives=others, length_normalization=0.5))
            steps[others] += speaker.steps
    assert steps[0] < 0.8 * steps[2]


def test_a_beam_wider_than_the_vocabulary() -> None:
    language = Language(words=1)
    [found] = search(Speaker(language, [3]), 1, options(16, 3, alternatives=15))
    assert [len(h.tokens) for h in sorted(found, key=lambda h: len(h.tokens))] == [1, 2, 3]


@pytest.mark.parametrize("needs", [[(FIRST_WORD,)], [(FIRST_WORD, FIRST_WORD + 1), (FIRST_WORD + 2,)]])
def test_captions_hold_what_they_must(needs: list[tuple[int, ...]]) -> None:
    """A wide enough beam finds the best of all captions that hold the words."""
    language = Language(words=3)

    def holds(found: Hypothesis) -> bool:
        return all(set(forms) & set(found.tokens) for forms in needs)

    images = list(range(12))
    asked = options(16, 4, alternatives=3)
    for image, found in zip(images, search(Speaker(language, images), 12, asked, needs), strict=True):
        expected = sorted(filter(holds, language.all_captions(image, 4)), key=score, reverse=True)
        assert found[0].tokens == expected[0].tokens
        assert all(map(holds, found))
        for one in found:
            check(one, language, image)


@pytest.mark.parametrize("beam", [1, 3])
def test_unlikely_words_are_said_within_the_limit(beam: int) -> None:
    language = Language(words=6, end_bias=4.0, peak=3.0)
    needs = [(FIRST_WORD + 5,), (FIRST_WORD + 4,), (FIRST_WORD + 3,)]
    images = list(range(10))
    for image, [found] in zip(
        images, search(Speaker(language, images), 10, options(beam, 3), needs), strict=True
    ):
        assert {forms[0] for forms in needs} == set(found.tokens)
        check(found, language, image)


@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_the_best_does_not_depend_on_how_many_others_are_asked_for(alpha: float) -> None:
    language, images = Language(words=8), list(range(20))
    alone = search(Speaker(language, images), 20, options(2, 6, length_normalization=alpha))
    for others in (1, 4, 15):
        asked = options(2, 6, alternatives=others, length_normalization=alpha)
        for [best], several in zip(alone, search(Speaker(language, images), 20, asked), strict=True):
            assert several[0].tokens == best.tokens
            assert len({found.tokens for found in several}) == len(several) >= others


@pytest.mark.parametrize("beam", [1, 3])
def test_images_whose_captions_are_found_leave_the_batch(beam: int) -> None:
    language = Language(words=6, end_bias=0.3)
    images = list(range(16))
    speaker = Speaker(language, images)
    sizes: list[int] = []
    plain = Speaker.choose

    def watched(self: Speaker, tokens: np.ndarray, *rest: object) -> object:
        sizes.append(len(tokens))
        return plain(self, tokens, *rest)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Speaker, "choose", watched)
        together = search(speaker, len(images), options(beam, 12))
    assert sizes[0] == 16 and sizes == sorted(sizes, reverse=True) and sizes[-1] <= 8
    for image in images:
        [alone] = search(Speaker(language, [image]), 1, options(beam, 12))
        assert [h.tokens for h in alone] == [h.tokens for h in together[image]]
        for found in together[image]:
            check(found, language, image)


def test_each_image_of_a_batch_has_options_of_its_own() -> None:
    """Whatever differs between them, each finds what it finds alone."""
    language = Language(words=6, end_bias=-0.5)
    first, second = FIRST_WORD, FIRST_WORD + 1
    asked: list[tuple[CaptionOptions, list[tuple[int, ...]]]] = [
        (options(3, 8), []),
        (options(3, 3), []),
        (options(3, 12, length_normalization=2.0), []),
        (options(3, 12, length_normalization=0.7, no_repeat_ngram=1), []),
        (options(3, 9, no_repeat_ngram=2, alternatives=2), []),
        (options(3, 6, alternatives=7), []),
        (options(8, 6, alternatives=1), []),
        (options(1, 10), []),
        (options(1, 4, no_repeat_ngram=2), []),
        (options(3, 8), [(first,)]),
        (options(3, 3, length_normalization=1.0), [(second, first + 5)]),
        (options(3, 10, no_repeat_ngram=1), [(first + 3,)]),
        (options(2, 7, alternatives=4), [(first,), (second,)]),
        (options(2, 5), [(first + 4,), (first + 2,)]),
    ]
    for order in range(3):
        places = np.random.default_rng(order).permutation(len(asked)).tolist()
        speaker = Speaker(language, places)
        together = search_each(speaker, [asked[i][0] for i in places], [asked[i][1] for i in places])
        for image, several in zip(places, together, strict=True):
            one, words = asked[image]
            [alone] = search(Speaker(language, [image]), 1, one, words)
            assert several and [h.tokens for h in several] == [h.tokens for h in alone]
            assert [h.log_probs for h in several] == [h.log_probs for h in alone]
            for found in several:
                check(found, language, image)


def test_what_differs_in_numbers_alone_is_searched_together() -> None:
    images = list(range(12))
    speaker = Speaker(Language(words=6), images)
    asked = [options(4, 4 + i, length_normalization=i / 10, no_repeat_ngram=i % 4) for i in images]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Speaker, "select", lambda *_: pytest.fail("some are searched apart"))
        patch.setattr(Speaker, "keep", lambda *_: None)
        search_each(speaker, asked, [[(FIRST_WORD + i % 4,)] for i in images])
    assert speaker.steps <= 16
