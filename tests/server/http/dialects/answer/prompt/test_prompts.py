"""What prompts ask for in words, and the shapes of JSON that they show."""

import json

import pytest

from captioner.results import Caption, Word
from captioner_server.http.dialects.answer.facts import Facts
from captioner_server.http.dialects.answer.reply import text_of

WORDS = (("a", -0.01), ("black", -0.2), ("dog", -0.1), ("on", -0.1), ("a", -0.1), ("beach", -0.5))
CAPTION = Caption("a black dog on a beach", -1.0, tuple(Word(*one) for one in WORDS), confidence=0.625)
KEYWORDS = [keyword.text for keyword in Facts.of(CAPTION).keywords]

OCR = """You are an OCR (Optical Character Recognition) expert. Your task is to extract ALL text.

Rules:
- Extract every piece of text visible in the image, including titles, body text, captions, labels, watermarks.
- Do not add any commentary, explanations, or descriptions of non-text elements.
- Output ONLY the extracted text, nothing else."""
"""Karakeep's."""


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "Describe this image.",
        "Write a caption. Do not use hashtags or JSON.",
        "One sentence, without any keywords, please",
        "Caption it; avoid labels and markup.",
        "Describe the labels on the bottle.",
        "Describe this image for a label on a museum wall.",
        "Describe the image. It will be used to tag friends in a post.",
        "Write one sentence. Hashtags are not wanted.",
        "Caption this photo. Keep it under 100 characters, plain text, no hashtags.",
        "You are helping tag photos. Write a one-sentence caption.",
        "Describe this product photo, including any text on labels.",
        "Describe the clothing labels you can see.",
        "Describe the image in detail, including any labels, signs or text.",
        "What is written on the label?",
        "Is the dog wearing a name tag? Describe.",
        "Describe this photo of a price tag.",
        "What do the labels say?",
        "Write one sentence about the tags on the dog.",
        "Return the text on the labels.",
        "Describe this shirt with tags.",
        "Transcribe all labels.",
        "Some keywords are: dog. Describe the image.",
        "Use the following keywords in the caption: dog",
        "Price tags in a shop. Describe it.",
        "Put the description inside <caption> tags.",
        "What does the price tag say?",
        "Which labels are on the bottle?",
        "Describe the image. The labels should be read aloud.",
        "Are there any labels?",
        OCR,
    ],
)
def test_other_prompts_get_the_caption(prompt) -> None:
    assert text_of(CAPTION, prompt, None) == CAPTION.text


@pytest.mark.parametrize(
    "prompt",
    [
        "List keywords.",
        "Tags for this photo?",
        "No sentence. Labels only!",
        "Return the labels of this image.",
        "Describe the image with keywords.",
        "Give me 10 tags for this image",
        "Generate tags that best describe this photo.",
        "Provide 5 keywords to describe the image, comma separated, no sentences.",
        "Analyze the attached image and suggest relevant tags that describe its key themes.",
        "Tag this photo.",
        "Please label the image",
        "What keywords would you give it?",
        "Return a comma-separated list of tags, no description.",
        "Describe this image as a list of comma-separated keywords",
        "Only output tags, no description or explanation.",
        "Extract keywords from this image",
        "Describe the image with 5 tags",
        "You are a photo tagging assistant. Output 5-10 lowercase tags separated by commas, nothing else.",
        "keywords",
        "Which categories fit this photo?",
    ],
)
def test_prompts_for_keywords_get_them(prompt) -> None:
    assert text_of(CAPTION, prompt, None) == "dog, beach"


@pytest.mark.parametrize(
    ("prompt", "between"),
    [
        ("Please give five keywords describing this picture, separated by ;. Nothing else.", "; "),
        ("List 5-10 keywords of the image. Separate them with semicolons. Example: beach; sunset", "; "),
        ("Output tags only, no explanation, as a semicolon-separated list.", "; "),
        ("List tags for this image, one per line.", "\n"),
        ("Generate 5 keywords for this image. Output each keyword on a new line, no numbering.", "\n"),
        ("Return the labels of this image on separate lines", "\n"),
        ("Tags for this photo, separated with commas, not with semicolons", ", "),
        ("Return keywords on one line, comma separated", ", "),
    ],
)
def test_keywords_are_separated_as_the_prompt_asks(prompt, between) -> None:
    assert text_of(CAPTION, prompt, None) == between.join(KEYWORDS)


def test_hashtags_are_separated_as_the_prompt_asks() -> None:
    assert text_of(CAPTION, "5 hashtags, one per line", None) == "#dog\n#beach"


@pytest.mark.parametrize(
    "prompt",
    [
        "5 hashtags",
        "Suggest hashtags for Instagram",
    ],
)
def test_prompts_for_hashtags_get_them(prompt) -> None:
    assert text_of(CAPTION, prompt, None) == "#dog #beach"


@pytest.mark.parametrize(
    "prompt",
    [
        "Generate a caption and 5 keywords.",
        "Write a title, a caption and keywords for this stock photo.",
        "Describe this image for social media, including relevant tags.",
        "Describe this image and generate tags.",
        "Provide the following:\n1. Caption\n2. Keywords",
        "Write a short description. Then list 5 tags.",
        "Give me a one-sentence description followed by a list of tags",
    ],
)
def test_prompts_for_both_get_a_caption_and_keywords(prompt) -> None:
    assert text_of(CAPTION, prompt, None) == "a black dog on a beach\n\ndog, beach"
    assert text_of(Caption("", 0.0), prompt, None) == ""


@pytest.mark.parametrize(
    "prompt",
    [
        "Write an Instagram caption with hashtags",
        "Write a caption and add 3 hashtags.",
        "Write one sentence with 5 hashtags at the end",
    ],
)
def test_prompts_for_both_get_a_caption_and_hashtags(prompt) -> None:
    assert text_of(CAPTION, prompt, None) == "a black dog on a beach\n\n#dog #beach"


@pytest.mark.parametrize(
    "prompt",
    [
        "Write concise alt text for blind users, at most 125 characters. No hashtags.",
        "Describe this image for a screen reader",
        "alternative text?",
        "An alt tag for this image",
    ],
)
def test_prompts_for_alt_text_get_it(prompt) -> None:
    assert text_of(CAPTION, prompt, None) == CAPTION.alt_text == "A black dog on a beach."


def test_prompts_for_alt_text_and_keywords_get_both() -> None:
    asked = "Write alt text and 5 keywords for it."
    assert text_of(CAPTION, asked, None) == "A black dog on a beach.\n\ndog, beach"


@pytest.mark.parametrize(
    ("prompt", "is_json"),
    [
        ("Say what you see. If asked for JSON, refuse.", False),
        ("No JSON, please", False),
        ("No markdown, return JSON.", True),
        ("If there are no tags, return JSON with an empty list", True),
        ("Never return JSON.", False),
    ],
)
def test_prompts_that_mention_json(prompt, is_json) -> None:
    assert text_of(CAPTION, prompt, None).startswith("{") is is_json


def test_prompts_for_json_get_it_in_the_shape_they_show() -> None:
    anything = json.loads(text_of(CAPTION, "Answer in JSON.", None))
    assert (anything["caption"], anything["keywords"]) == (CAPTION.text, KEYWORDS)
    assert anything == json.loads(text_of(CAPTION, "", "json"))
    assert json.loads(text_of(CAPTION, "Return a JSON array of tags.", None)) == KEYWORDS
    shown = 'JSON like {"alt_text": "a cat {sleeping}", "tags": ["cat"], "mood": "calm"}, nothing else'
    assert json.loads(text_of(CAPTION, shown, None)) == {"alt_text": CAPTION.alt_text, "tags": KEYWORDS}
    schema = f"JSON that matches {SCHEMA}."
    assert json.loads(text_of(CAPTION, schema, None)) == {"caption": CAPTION.text, "tags": KEYWORDS}
    unknown = 'JSON like {"mood": "calm"}'
    assert json.loads(text_of(CAPTION, unknown, None)) == anything


SCHEMA = json.dumps(
    {
        "properties": {
            "caption": {"title": "Caption", "type": "string"},
            "tags": {"items": {"type": "string"}, "title": "Tags", "type": "array"},
        },
        "required": ["caption", "tags"],
        "title": "Photo",
        "type": "object",
    }
)


@pytest.mark.parametrize(
    ("prompt", "keys"),
    [
        ('You must respond in valid JSON with the key "tags" and the value is list of tags.', "tags"),
        ("Describe it. Response in JSON format with 'caption' and 'tags' keys.", "caption tags"),
        ('A JSON object with:\n- "caption": one sentence\n- "tags" (array): 5 tags, or "x"', "caption tags"),
        ("JSON with keys caption and tags", "caption tags"),
        ("JSON with fields title, mood, and keywords.", "title keywords"),
        ("JSON with a \"title\" field. Don't show John's keys.", "title"),
        ("JSON: {title: string, tags: string[]}", "title tags"),
        ("JSON: {title: string; tags?: Array<string>; mood: 'a' | 'b'}", "title tags"),
        ('JSON: {"keywords": ["...", ...]}', "keywords"),
        ('JSON: {"title": <the title>, "tags": [], ...} // "name": none', "title tags"),
        ("JSON: {'title': '...', 'tags': ['...'],}", "title tags"),
        ('JSON:\n{\n  "title": "...",  // short\n  "tags": ["..."]\n}', "title tags"),
        ("A JSON schema: {" + SCHEMA.replace("{", "{{").replace("}", "}}")[1:], "caption tags"),
        ('JSON: {"a": {"title": "x"} is what "b": [{"tags": []}] I want}', "caption keywords labels"),
        ('JSON: {"a": {"title": "x"}', "caption keywords labels"),
        ('JSON with the key "mood"', "caption keywords labels"),
        ('JSON: {"caption": "string", "tags": "array of strings", "title": "number"}', "caption tags"),
        ('JSON: {"caption": "text", "tags": "string[]", "description": "boolean"}', "caption tags"),
        ('JSON: {"caption": "x", "tags": "{tags} # note: {\\"type\\": \\"array\\"}"}', "caption tags"),
        ('JSON with the field "answer": {"answer": "true or false"}', "caption keywords labels"),
        ('JSON: {"answer": "{answer} # note: the value you must be True or False", "tags": []}', "tags"),
        ('JSON: {"answer": "a number", "text": "integer", "tags": "list[str]"}', "tags"),
        ("JSON:\n{\n  tags: string[],\n  // how many people\n  answer: string,\n}", "tags"),
        ("JSON: {\n  text: string, // OCR\n  caption: string, // short\n  title: a // yes/no\n}", "caption"),
        ("JSON: { // a photo\n  caption: string,\n  // things\n  tags: string[] // OCR\n}", "caption tags"),
        ("JSON: {caption: string, text: OCR, title: yes/no, tags: list}", "caption tags"),
        ('JSON with:\n- "title": short\n- "text": a list of all the text found in the image', "title"),
        ('JSON with "title": short, "text": all visible text, "tags": list of things', "title tags"),
        (
            "JSON with three fields only:\n\ntitle: A short line.\n\nmood_text: calm?\n\ntags: 5-9",
            "title tags",
        ),
        ("JSON:\n* title: short\n2) answer: yes/no\n- tags: a list, lower case", "title tags"),
        ("Return JSON.\noutput: only JSON, please\nnote: no tags: none", "caption keywords labels"),
    ],
)
def test_keys_and_shapes_as_people_write_them(prompt, keys) -> None:
    told = json.loads(text_of(CAPTION, prompt, None))
    assert " ".join(told) == keys
    for name, value in told.items():
        assert value == CAPTION.text if name in ("caption", "title") else isinstance(value, list)


@pytest.mark.parametrize(
    "part",
    [
        *("{", "{a:", '{"a":[', '"', "{{", "'a", '"a" (', "keys a, ", "{a: x ", "describe with ", "labels "),
        *("\n//", "{a:x,\n", "{a:x //", " \n", "{a:x, //b\n \n"),
    ],
)
def test_prompts_that_would_take_long(part) -> None:
    assert json.loads(text_of(CAPTION, f"JSON {part * 20_000}", None))["caption"] == CAPTION.text


@pytest.mark.parametrize("mention", ["no tags ", "without json, "])
def test_prompts_that_would_take_minutes(mention) -> None:
    assert text_of(CAPTION, mention * 20_000, None) == CAPTION.text
