"""The protocols of Ollama and OpenAI, so that programs which speak them get captions.

`ollama` and `openai` read requests and write answers in the form of their protocol. What is between the two
is the same for all: a request becomes a `Question` (`question`), and its caption a `Reply` (`answer`).
"""
