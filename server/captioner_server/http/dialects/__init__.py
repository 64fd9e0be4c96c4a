"""The protocols of Ollama and OpenAI, so that programs which speak them get captions.

A request becomes a `Question` (`question.py`), its caption a `Reply` (`reply.py`); `ollama.py`, `chat.py` and
`responses.py` read and write the forms of the protocols.
"""
