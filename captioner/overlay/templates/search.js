// Which photos are shown, and in what order.

// Marks that people may leave out. Those of other scripts make other letters: vowels of Hindi, が of か.
const ACCENTS = /([\p{Script=Latin}\p{Script=Greek}\p{Script=Cyrillic}\p{Script=Arabic}\p{Script=Hebrew}])\p{M}+/gu;

// Letters that have no accent to leave out, and what people type for them. The tatweel makes Arabic words longer.
const LETTERS = { ß: "ss", æ: "ae", œ: "oe", ø: "o", ł: "l", đ: "d", ð: "d", þ: "th", ħ: "h", ı: "i", "\u0640": "" };
const LETTER = new RegExp(`[${Object.keys(LETTERS).join("")}]`, "g");

// Letters as people type them: small, without accents.
function fold(text) {
  const plain = text.normalize("NFKD").replace(ACCENTS, "$1").normalize("NFC").toLowerCase();
  return plain.replace(LETTER, (letter) => LETTERS[letter]);
}

const WORD = /[\p{L}\p{N}][\p{L}\p{M}\p{N}\p{Join_Control}]*(?:['’][\p{L}\p{M}]+)*/gu;

// `small` are the words that name nothing; the others are those of captioner/words/forms.py.
function createSearch({ small, compounds, stems, bases, kinds }) {
  const smallWords = new Set(small), known = new Map(Object.entries(bases)), together = new Set(compounds);
  const longest = Math.max(...compounds.map((compound) => compound.split(" ").length));
  const rules = stems.map(([pattern, ending]) => [new RegExp(`^${pattern}$`, "u"), ending]);
  const UNDIVIDED = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;
  const TERM = /(-?)(?:"([^"]*)"?|(\S+))/g;
  let vocabulary = null;

  function baseOf(word) {
    if (known.has(word)) return known.get(word);
    let stem = word;
    for (const [pattern, ending] of rules) {
      const found = stem.match(pattern);
      if (found) stem = found[1] + ending;
    }
    return known.get(stem) ?? stem;
  }

  // The words of a list, each compound as one, as [word, number of the first, number after the last].
  function joined(words) {
    const found = [];
    for (let start = 0, end; start < words.length; start = end) {
      const upTo = (last) => words.slice(start, last).join(" ");
      for (end = Math.min(words.length, start + longest); end > start + 1 && !together.has(upTo(end)); end--);
      found.push([upTo(end), start, end]);
    }
    return found;
  }

  // Those of a text, as [word, where it begins, where it ends].
  function wordsOf(text) {
    const found = [...text.matchAll(WORD)];
    return joined(found.map(([word]) => fold(word))).map(([word, start, end]) => [word, found[start].index, found[end - 1].index + found[end - 1][0].length]);
  }

  // Where letters are in a text, but not within a compound: "dog" does not find "hot dog".
  function* lettersIn(text, letters, whole) {
    const compound = whole ? [] : wordsOf(text).filter(([word]) => together.has(word));
    for (const found of text.matchAll(new RegExp(letters, "giu")))
      if (!compound.some(([, start, end]) => start < found.index && found.index < end)) yield [found.index, found[0].length];
  }

  // What is looked at in a photo; to be called anew when its caption changes.
  function index(photo, said) {
    photo.haystack = fold(`${said ?? ""} ${photo.error ?? ""}`).replace(/\s+/g, " ");
    photo.names = fold(photo.name);
    photo.bases = new Map(wordsOf(said ?? "").map(([word, start, end]) => [baseOf(word), said.slice(start, end).toLowerCase()]));
    vocabulary = null;
  }

  const escape = (letters) => letters.replace(/[.*+?^${}()|[\]\\\/]/g, "\\$&");

  // Letters at the start of words, so that "dog" finds "doggy" but not "hotdogs", and anywhere in scripts that do
  // not divide words, however somebody has divided them.
  function pattern(letters, whole) {
    if (UNDIVIDED.test(letters)) return [...letters.replace(/\s/g, "")].map(escape).join("\\s*");
    const plain = escape(letters);
    const begin = /^\p{L}/u.test(letters) ? "(?<![\\p{L}\\p{M}])" : /^\p{N}/u.test(letters) ? "(?<!\\p{N})" : "";
    return `${begin}${plain}${whole && /[\p{L}\p{M}\p{N}]$/u.test(letters) ? "(?![\\p{L}\\p{M}\\p{N}])" : ""}`;
  }

  // The terms of a query: {without, bases, test, mark, whole}. Words that name nothing count in quotes only.
  function parse(query, photos) {
    vocabulary ??= new Set(photos.flatMap((photo) => [...photo.bases.keys()]));
    const terms = [], plainWords = [], small = new Set();  // as typed: "be", but not "bé"
    const add = (text, whole, without) => {
      const mark = pattern(text, whole), expression = new RegExp(mark, "u");
      const base = baseOf(text);
      const all = whole || UNDIVIDED.test(text) ? [] : [base, ...kinds[base] ?? []].filter((one) => vocabulary.has(one));
      const says = (photo) => all.length ? all.some((one) => photo.bases.has(one)) : expression.test(photo.haystack) && !lettersIn(photo.haystack, mark, whole).next().done;
      const test = (photo) => says(photo) || expression.test(photo.names);
      terms.push({ without, bases: all, test, mark, whole, small: !whole && small.has(text) });
    };
    for (const [, minus, quoted, plain] of query.matchAll(TERM)) {
      const typed = (quoted ?? plain).replace(/\s+/g, " ").trim().toLowerCase(), text = fold(typed);
      if (!text || text === "-") continue;
      if (smallWords.has(typed)) small.add(text);
      if (quoted === undefined && !minus) plainWords.push(text);
      else add(text, quoted !== undefined, minus === "-");
    }
    for (const [text] of joined(plainWords)) add(text, false, false);
    const weighty = terms.filter((term) => !term.small || term.without);
    return weighty.some((term) => !term.without) || !terms.length ? weighty : terms;
  }

  // Photos that have all words of the query, or else those that have the most telling ones of them, best first.
  function find(photos, query) {
    const terms = parse(query, photos), wanted = terms.filter((term) => !term.without);
    const left = photos.filter((photo) => !terms.some((term) => term.without && term.test(photo)));
    const all = left.filter((photo) => wanted.every((term) => term.test(photo)));
    if (all.length || wanted.length < 2) return { photos: all, partial: false };
    const weights = wanted.map((term) => Math.log(1 + left.length / (1 + left.filter(term.test).length)));
    const least = Math.max(...weights);
    const scored = left.map((photo) => [wanted.reduce((sum, term, at) => sum + (term.test(photo) ? weights[at] : 0), 0), photo]);
    const some = scored.filter(([score]) => score >= least / 2 && score > 0).sort((a, b) => b[0] - a[0] || a[1].number - b[1].number);
    return { photos: some.map(([, photo]) => photo), partial: some.length > 0 };
  }

  // `text` as nodes in which what the query names is marked.
  function mark(text, query, photos) {
    const terms = query.trim() ? parse(query, photos).filter((term) => !term.without) : [];
    const spans = [];
    for (const term of terms) {
      if (term.bases.length) {
        for (const [word, start, end] of wordsOf(text)) if (term.bases.includes(baseOf(word))) spans.push([start, end - start]);
      } else spans.push(...lettersIn(text, term.mark, term.whole));
    }
    const nodes = [];
    let end = 0;
    for (const [start, length] of spans.sort((a, b) => a[0] - b[0])) {
      if (start < end || !length) continue;
      const marked = document.createElement("mark");
      marked.textContent = text.slice(start, start + length);
      nodes.push(document.createTextNode(text.slice(end, start)), marked);
      end = start + length;
    }
    return [...nodes, document.createTextNode(text.slice(end))];
  }

  // The words that name something, the most frequent first, as [base, a form of it, count].
  function keywords(photos) {
    const counts = new Map();
    for (const photo of photos)
      for (const [base, word] of photo.bases)
        if (!smallWords.has(word) && word.length > 1) counts.set(base, [word, (counts.get(base)?.[1] ?? 0) + 1]);
    return [...counts].map(([base, [word, count]]) => [base, word, count]).sort((a, b) => b[2] - a[2] || (a[1] < b[1] ? -1 : 1));
  }

  return { baseOf, index, find, mark, keywords };
}

const names = new Intl.Collator(undefined, { numeric: true });
const folderOf = (photo) => photo.name.includes("/") ? photo.name.replace(/\/[^/]*$/, "") : "";

// Whether the filters let a photo through.
function passes(photo, { show, sureness, folder, keyword }) {
  const kinds = {
    all: true, open: photo.error === null && !photo.decision, failed: photo.error !== null, captioned: photo.error === null,
    alike: photo.alike !== undefined,
    [photo.decision?.status]: true,
  };
  if (!kinds[show]) return false;
  if (folder && folderOf(photo) !== folder && !folderOf(photo).startsWith(`${folder}/`)) return false;
  if (keyword && !photo.bases.has(keyword)) return false;
  if (!sureness) return true;
  const [low, high] = sureness.split("-").map(Number), value = photo.confidence ?? photo.probability;
  return value !== null && value >= low && value < high;
}

const ORDERS = {
  least: (a, b) => (a.probability ?? Infinity) - (b.probability ?? Infinity) || a.number - b.number,
  most: (a, b) => (b.probability ?? -1) - (a.probability ?? -1) || a.number - b.number,
  name: (a, b) => names.compare(a.name, b.name) || a.number - b.number,
};
