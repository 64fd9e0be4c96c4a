// The HTTP interface: one photo in, words and a caption out. The token is kept for this tab only.
function createApi(askForToken) {
  const KEY = "captioner-token", MOST_TRIES = 30, SLOW_MS = 8000;
  const UNREACHABLE_TRIES = 4; // with 1, 2 and 4 seconds between them
  const LOST = "The connection to the server was lost.", UNREADABLE = "The answer is not one of this server.";
  let token = null, asking = null;
  try { token = sessionStorage.getItem(KEY); } catch { /* then it lasts as long as the page */ }

  class ApiError extends Error {
    constructor(status, code, message) {
      super(message);
      this.status = status;
      this.code = code;
    }

    // Whether the same call may succeed later: nothing is wrong with the photo.
    get passing() { return ![400, 404, 413].includes(this.status); }

    // Whether other photos would fail too.
    get general() { return [0, 401, 429, 503].includes(this.status); }
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
    const given = await asking;
    if (!given) throw new ApiError(401, "UNAUTHENTICATED", "The server needs a token, and none was given.");
    token = given;
    try { sessionStorage.setItem(KEY, token); } catch { /* see above */ }
  }

  // What fetch gives. `tell` is called when that takes long.
  async function send(path, { body, signal, tell }, headers) {
    const slow = setTimeout(() => tell?.("No answer yet: the network or the server is slow. Still waiting…"), SLOW_MS);
    try {
      return await fetch(path, { method: body ? "POST" : "GET", body, headers, signal });
    } catch (error) {
      if (error.name === "AbortError" || signal?.aborted) throw error;
      const readable = await body?.slice(0, 1).arrayBuffer().then(() => true, () => false);
      if (readable === false) throw new ApiError(400, "UNREADABLE", "The file was moved or changed, and cannot be read.");
      throw new ApiError(0, "UNREACHABLE", "The server cannot be reached.");
    } finally {
      clearTimeout(slow);
    }
  }

  // The response of a call, asking for a token and waiting for a busy or unreachable server where that is needed.
  async function call(path, { body, signal, tell } = {}) {
    for (let tries = 1; ; tries++) {
      signal?.throwIfAborted();
      const used = token;
      const headers = used ? { Authorization: `Bearer ${used}` } : {};
      if (body) headers["Content-Type"] = body.type.startsWith("image/") ? body.type : "application/octet-stream";
      let error, seconds = 2 ** (tries - 1), most = UNREACHABLE_TRIES;
      try {
        const response = await send(path, { body, signal, tell }, headers);
        if (response.ok) return response;
        error = await failure(response);
        seconds = Number(response.headers.get("Retry-After")) || 1;
        most = MOST_TRIES;
      } catch (caught) {
        error = caught;
      }
      if (error.status === 401) {
        if (token === used) await newToken(used !== null);
      } else if ([0, 429, 503].includes(error.status) && tries < most) {
        tell?.(`${error.message.replace(/\.$/, "")}; trying again in ${seconds} s…`);
        await pause(seconds, signal);
      } else throw error;
    }
  }

  // JSON from something else than this server, such as a proxy's page, is an error with a name.
  const parse = (text) => {
    try { return JSON.parse(text); } catch { throw new ApiError(502, "UNREADABLE", UNREADABLE); }
  };
  const whole = (response, signal) => response.text().catch((error) => {
    throw signal?.aborted ? error : new ApiError(0, "UNREACHABLE", LOST);
  });

  const path = (name, options) => `${name}?${new URLSearchParams(options)}`;

  async function caption(photo, options, hooks) {
    return parse(await whole(await call(path("v1/caption", options), { body: photo, ...hooks }), hooks.signal));
  }

  // Events of a stream as [kind, data], the caption last; an event called error is thrown.
  async function* stream(photo, options, hooks) {
    const response = await call(path("v1/caption:stream", options), { body: photo, ...hooks });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        if (hooks.signal?.aborted) throw error;
        return { done: true };
      });
      if (done) throw new ApiError(0, "UNREACHABLE", LOST);
      text += value;
      const events = text.split("\n\n");
      text = events.pop();
      for (const event of events) {
        const [, kind, data] = event.match(/^event: (\w+)\ndata: (.*)$/) ?? [];
        const content = parse(data);
        if (kind === "error") throw new ApiError(500, content.error.code, content.error.message);
        yield [kind, content];
        if (kind === "caption") return;
      }
    }
  }

  // The photo as the server decodes it, as a JPEG.
  const picture = async (photo, hooks) => (await call("v1/picture", { body: photo, ...hooks })).blob();

  const model = async () => parse(await whole(await call("v1/model")));
  return { caption, stream, picture, model };
}
