// Which photos are shown, and in what order.

// Letters as people type them: small, without accents.
function fold(text) {
  return text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
}

// Photos (see gallery.js) that have all words of the query, of the kind to show, in order.
function selectPhotos(photos, { query, order, show }) {
  const terms = fold(query).split(/\s+/).filter(Boolean);
  const found = photos.filter((photo) =>
    (show === "all" || (show === "failed") === (photo.error !== null)) && terms.every((term) => photo.haystack.includes(term)));
  const last = Infinity; // failed photos have no confidence and stand last
  const compare = {
    least: (a, b) => (a.confidence ?? last) - (b.confidence ?? last) || a.number - b.number,
    most: (a, b) => (b.confidence ?? -1) - (a.confidence ?? -1) || a.number - b.number,
    name: (a, b) => names.compare(a.name, b.name) || a.number - b.number,
  }[order];
  return compare ? found.sort(compare) : found;
}
const names = new Intl.Collator(undefined, { numeric: true });

// `text` as nodes in which what the query names is marked.
function markTerms(text, query) {
  const terms = query.trim().split(/\s+/).filter(Boolean).map((term) => term.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (!terms.length) return [document.createTextNode(text)];
  return text.split(new RegExp(`(${terms.join("|")})`, "i")).map((part, at) => {
    if (at % 2 === 0) return document.createTextNode(part);
    const mark = document.createElement("mark");
    mark.textContent = part;
    return mark;
  });
}
