// Which photos are shown, and in what order.

// Letters as people type them: small, without accents.
function fold(text) {
  return text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
}

// What finds a word of the query: at the start of words, so that "dog" finds "dogs" but not "hotdogs", and
// anywhere in scripts that do not divide words.
const UNDIVIDED = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}]/u;
function termPattern(term) {
  const letters = term.replace(/[.*+?^${}()|[\]\\\/]/g, "\\$&");
  if (UNDIVIDED.test(term)) return letters;
  return /^\p{L}/u.test(term) ? `(?<!\\p{L})${letters}` : /^\p{N}/u.test(term) ? `(?<!\\p{N})${letters}` : letters;
}

// Photos (see gallery.js) that have all words of the query, of the kind to show, in order.
function selectPhotos(photos, { query, order, show }) {
  const terms = fold(query).split(/\s+/).filter(Boolean).map((term) => new RegExp(termPattern(term), "u"));
  const found = photos.filter((photo) =>
    (show === "all" || (show === "open" ? photo.error === null && !photo.decision : (show === "failed") === (photo.error !== null))) && terms.every((term) => term.test(photo.haystack)));
  const last = Infinity; // failed photos have no probability and come last
  const compare = {
    least: (a, b) => (a.probability ?? last) - (b.probability ?? last) || a.number - b.number,
    most: (a, b) => (b.probability ?? -1) - (a.probability ?? -1) || a.number - b.number,
    name: (a, b) => names.compare(a.name, b.name) || a.number - b.number,
  }[order];
  return compare ? found.sort(compare) : found;
}
const names = new Intl.Collator(undefined, { numeric: true });

// `text` as nodes in which what the query names is marked.
function markTerms(text, query) {
  const terms = query.trim().split(/\s+/).filter(Boolean).map(termPattern);
  if (!terms.length) return [document.createTextNode(text)];
  return text.split(new RegExp(`(${terms.join("|")})`, "iu")).map((part, at) => {
    if (at % 2 === 0) return document.createTextNode(part);
    const mark = document.createElement("mark");
    mark.textContent = part;
    return mark;
  });
}
