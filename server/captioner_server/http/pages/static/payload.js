// From a caption as the server answers it to what createView shows; as captioner/overlay/payload.py.

const FAINTEST_PEAK = 3;

// The weights of a cell, after smoothing, where colour begins and where it is full.
function displayRange(weights, [rows, columns]) {
  const down = splineMatrix(rows, 3 * rows), across = splineMatrix(columns, 3 * columns);
  let peak = 0, sum = 0;
  for (const weight of weights) sum += weight;
  const stretched = across.map((row) => Array.from({ length: rows }, (_, y) =>
    row.reduce((total, share, x) => total + share * weights[y * columns + x], 0)));
  for (const column of stretched)
    for (const row of down) peak = Math.max(peak, row.reduce((total, share, y) => total + share * column[y], 0));
  const floor = sum / weights.length;
  return { floor, peak: Math.max(peak, Math.min(1, FAINTEST_PEAK / weights.length), floor + 1e-6) };
}

function wordPayload(word, settings) {
  const shown = {
    text: word.text, small: settings.forms.small.includes(word.text.toLowerCase()),
    probability: Math.exp(Math.min(0, word.log_prob)), sentinel: word.sentinel ?? null,
  };
  if (!word.attention) return shown;
  const weights = word.attention.flat(), max = Math.max(...weights);
  const levels = weights.map((weight) => String.fromCharCode(Math.round(weight / (max || 1) * 255)));
  return { ...shown, max, ...displayRange(weights, [word.attention.length, word.attention[0].length]), map: btoa(levels.join("")) };
}

// `size` is { width, height }; `finished` is false while words still come.
function makePayload(caption, size, settings, finished = true) {
  const first = caption.words.find((word) => word.attention)?.attention;
  const shares = caption.words.length + 1;
  return {
    caption: caption.caption, ...size, mode: document.querySelector("[name=mode]:checked")?.value ?? "heat",
    grid: first ? [first.length, first[0].length] : [1, 1], alpha: settings.alpha, colormap: settings.colormap,
    logProb: finished ? caption.log_prob : null,
    meanProbability: finished ? Math.exp(Math.min(0, caption.log_prob / shares)) : null,
    confidence: caption.confidence ?? null, model: caption.model ?? "",
    words: caption.words.map((word) => wordPayload(word, settings)),
    alternatives: [...caption.alternatives ?? []].sort((a, b) => b.log_prob - a.log_prob)
      .map((other) => ({ text: other.caption, ratio: Math.exp(Math.min(50, other.log_prob - caption.log_prob)) })),
  };
}
