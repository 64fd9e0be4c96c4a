// The HTTP interface: one photo in, words and a caption out. The token is kept for this tab only.
function createApi(askForToken) {
  const KEY = "captioner-token", MOST_TRIES = 30;
  let token = null, asking = null;
  try { token = sessionStorage.getItem(KEY); } catch { /* then it lasts as long as the page */ }

  class ApiError extends Error {
    constructor(status, code, message) {
      super(message);
      this.status = status;
      this.code = code;
    }
  }

  async function failure(response) {
    const { error } = await response.json().catch(() => ({}));
    return new ApiError(response.status, error?.code ?? "INTERNAL", error?.message ?? `The server answered ${response.status}.`);
  }

  const pause = (seconds, signal) => new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    signal?.addEventListener("abort", stop, { once: true });
    setTimeout(() => { signal?.removeEventListener("abort", stop); resolve(); }, seconds * 1000);
  });

  async function newToken(wrong) {
    asking ??= askForToken(wrong).finally(() => { asking = null; });
    token = await asking;
    try { sessionStorage.setItem(KEY, token); } catch { /* see above */ }
  }

  // The response of a call, asking for a token and waiting for a busy server where that is needed.
  async function call(path, { body, signal, waiting } = {}) {
    for (let tries = 1; ; tries++) {
      signal?.throwIfAborted();
      const used = token;
      const headers = used ? { Authorization: `Bearer ${used}` } : {};
      if (body) headers["Content-Type"] = body.type.startsWith("image/") ? body.type : "application/octet-stream";
      let response;
      try {
        response = await fetch(path, { method: body ? "POST" : "GET", body, headers, signal });
      } catch (error) {
        if (error.name === "AbortError" || signal?.aborted) throw error;
        throw new ApiError(0, "UNREACHABLE", "The server cannot be reached.");
      }
      if (response.ok) return response;
      const error = await failure(response);
      if (response.status === 401) {
        if (token === used) await newToken(used !== null);
      } else if ([429, 503].includes(response.status) && tries < MOST_TRIES) {
        waiting?.(error.message);
        await pause(Number(response.headers.get("Retry-After")) || 1, signal);
      } else throw error;
    }
  }

  const path = (name, options) => `${name}?${new URLSearchParams(options)}`;

  async function caption(photo, options, hooks) {
    return (await call(path("v1/caption", options), { body: photo, ...hooks })).json();
  }

  // Events of a stream as [kind, data]; an event called error is thrown.
  async function* stream(photo, options, hooks) {
    const response = await call(path("v1/caption:stream", options), { body: photo, ...hooks });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      const events = text.split("\n\n");
      text = events.pop();
      for (const event of events) {
        const [, kind, data] = event.match(/^event: (\w+)\ndata: (.*)$/);
        const content = JSON.parse(data);
        if (kind === "error") throw new ApiError(500, content.error.code, content.error.message);
        yield [kind, content];
      }
    }
  }

  const model = async () => (await call("v1/model")).json();
  return { caption, stream, model };
}
