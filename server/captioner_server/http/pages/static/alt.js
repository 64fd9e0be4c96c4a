// Captions as alt text, by the rules of captioner/words/alt_text.py, which are in the settings.
function createAltText({ opening, foreign, neutral, hers, pairs, dangling, stops, dotted, longest }) {
  const words = Object.keys(neutral).sort((a, b) => b.length - a.length).join("|");
  const gendered = new RegExp(`\\b(?:${words})\\b`, "gi"), start = new RegExp(`^${opening}`, "i");
  const notEnglish = new RegExp(foreign, "i");
  const ends = stops.map(([ending, stop]) => [new RegExp(ending, "u"), stop]);
  const folding = pairs.map(([pattern, together]) => [new RegExp(pattern, "g"), together]);
  const capital = (text) => {
    if (/^\p{Script=Georgian}/u.test(text)) return text.slice(0, 1);
    return text.startsWith("i") && new RegExp(dotted).test(text) ? "İ" : text.slice(0, 1).toUpperCase();
  };
  return (caption) => {
    let text = caption.split(/\s+/).filter(Boolean).join(" ");
    for (let found; (found = text.match(start)) && found[0].length < text.length;) text = text.slice(found[0].length);
    if (!notEnglish.test(text)) {
      text = text.replace(new RegExp(hers, "gi"), "them").replace(gendered, (word) => neutral[word.toLowerCase()]);
      for (const [pattern, together] of folding) text = text.replace(pattern, together);
    }
    text = text.replace(/[. ]+$/, "");
    if (text.length >= longest) {
      const cut = text.slice(0, longest - 1);
      text = (cut.replace(/ [^ ]*$/, "") || cut).replace(new RegExp(dangling), "");
    }
    const [, stop] = ends.find(([ending]) => ending.test(text)) ?? [null, ""];
    return capital(text) + text.slice(1) + stop;
  };
}
