"""OpenAI's protocol: /v1/chat/completions, /v1/responses and /v1/models."""
