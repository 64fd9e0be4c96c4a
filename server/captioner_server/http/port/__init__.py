"""The HTTP port: uvicorn, and a protocol of HTTP/1.1 with bounds."""
