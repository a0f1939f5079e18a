// Finds a pasted message in the error index, as autograd_cookbook.errors.explain does: a browser test compares.
const index = JSON.parse(document.getElementById("error-index").textContent);
const variable = new Set(index.variable);
const heading = new RegExp(index.heading, "gm");
const frame = new RegExp(index.frame, "gm");

const words = (text) =>
  (text.replace(frame, "").toLowerCase().match(/[a-z_]{2,}|\*/g) ?? []).filter((word) => !variable.has(word));

const features = (found) => {
  const set = new Set(found.filter((word) => word !== "*"));
  found.slice(1).forEach((word, i) => {
    if (word !== "*" && found[i] !== "*") set.add(`${found[i]} ${word}`);
  });
  return set;
};

const counts = new Map();
index.entries.forEach((entry) => {
  entry.features = features(entry.words.split(" "));
  entry.features.forEach((feature) => counts.set(feature, (counts.get(feature) ?? 0) + 1));
});
const sum = (found) => found.reduce((total, f) => total + Math.log(1 + index.entries.length / counts.get(f)), 0);
index.entries.forEach((entry) => (entry.total = sum([...entry.features])));

const ranked = (text) => {
  const there = features(words(text));
  const ranking = index.entries.map((entry) => {
    const matched = sum([...entry.features].filter((feature) => there.has(feature)));
    return { entry, share: matched / entry.total, score: (matched * matched) / entry.total };
  });
  return ranking.sort((a, b) => b.score - a.score).slice(0, 3);
};

const explain = (text) => {
  const last = [...text.matchAll(heading)].at(-1);
  const message = last ? text.slice(last.index + last[0].length) : text;
  const first = ranked(message);
  return first[0].share >= index.known ? first : ranked(text);
};

const field = document.getElementById("error-text");
const place = document.querySelector(".error-found");

const show = () => {
  place.replaceChildren();
  if (!words(field.value).length) return;
  const found = explain(field.value);
  const known = found[0].share >= index.known;
  const verdict = document.createElement("p");
  verdict.textContent = known ? "This is:" : "No such message is in the index. The nearest are:";
  const list = document.createElement("ol");
  // What is known is one entry; others follow if the text has them as well.
  found
    .filter((each, rank) => !known || rank === 0 || each.share >= index.known)
    .forEach(({ entry }) => {
      const item = document.createElement("li");
      const link = document.createElement("a");
      const quoted = document.createElement("code");
      link.href = entry.url;
      link.textContent = entry.title;
      quoted.textContent = entry.said;
      item.append(link, quoted);
      list.append(item);
    });
  place.append(verdict, list);
  place.dataset.known = known;
};

field.form.addEventListener("submit", (event) => event.preventDefault());
field.addEventListener("input", show);
show(); // a browser may have kept the text
