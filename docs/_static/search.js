// The order of the search's hits, in place of that of Sphinx, with its index. Sphinx asks for all words, scores a page by
// one of them, and sorts equals by name. Here a page counts the words that it has, rare ones more: those of its titles
// and those that words.toml gives it more than those of its text. There is one hit a page, at its best section.
"use strict";

{
  const WORDS = JSON.parse(document.getElementById("search-words").textContent);
  const TITLE = 5; // of the page, and what words.toml says people call it
  const SECTION = 3;
  const TEXT = 1;
  const SAME = 0.7; // a synonym, compared with the word itself
  const PART = 0.5; // the beginning or the end of a word
  // Tables and what is generated come after pages that explain.
  const KINDS = { cookbook: 1, guide: 1, errors: 0.9, pitfalls: 0.9, glossary: 0.7, reference: 0.4 };
  const OTHER = 0.5;

  const stemmer = new Stemmer();
  const split = (text) => text.toLowerCase().split(/[^\p{L}\p{N}_]+/u).filter((word) => word);
  // save_for_backward is found by each of its parts, and by all of them.
  const stems = (text) => {
    const whole = split(text);
    const parts = whole.filter((word) => word.includes("_")).flatMap((word) => word.split("_").filter((part) => part));
    return [...new Set([...whole, ...parts].filter((word) => !stopwords.has(word)).map((word) => stemmer.stemWord(word)))];
  };
  const add = (map, key, value) => map.get(key)?.add(value) ?? map.set(key, new Set([value]));

  const kindOf = (name) => {
    const kind = name.split("/")[0];
    return name.endsWith("index") ? OTHER : (KINDS[kind] ?? OTHER);
  };

  const prepare = ({ docnames, titles, alltitles, terms, indexentries, objects, objnames }) => {
    const text = new Map();
    for (const [term, pages] of Object.entries(terms))
      for (const word of new Set([term.toLowerCase(), ...stems(term)]))
        for (const page of [pages].flat()) add(text, word, page);
    const pages = docnames.map((name, page) => ({
      name,
      title: titles[page],
      words: new Set(stems(titles[page])),
      called: (WORDS.pages[name] ?? []).map(stems),
      sections: [],
    }));
    const section = (page, title, anchor, description = null) =>
      pages[page].sections.push({ title, anchor, description, words: stems(title) });
    for (const [title, places] of Object.entries(alltitles))
      for (const [page, anchor] of places) if (anchor !== null) section(page, title, `#${anchor}`);
    for (const [entry, places] of Object.entries(indexentries))
      for (const [page, anchor, main] of places) if (docnames[page] === "glossary") section(page, entry, `#${anchor}`);
    for (const [prefix, entries] of Object.entries(objects))
      for (const [page, type, , anchor, name] of entries) {
        const full = prefix ? `${prefix}.${name}` : name;
        const [domain, role, label] = objnames[type];
        const target = anchor === "" ? full : anchor === "-" ? `${role}-${full}` : anchor;
        if (domain === "py") section(page, name, `#${target}`, label);
        // A name of a recipe leads to its page too.
        const recipe = prefix.split(".").pop();
        const home = pages.find((one) => one.name.startsWith("cookbook/") && one.name.endsWith(`/${recipe}`));
        home?.called.push(stems(name));
      }
    return { text, pages };
  };

  let prepared = null;

  // Each word of the query, with what else it may be called: [[word, weight], ...].
  const asked = (query) => {
    const words = stems(query);
    const others = new Map();
    for (const group of WORDS.same)
      for (const name of group) {
        const own = stems(name);
        if (!own.length || !own.every((word) => words.includes(word))) continue;
        for (const other of group)
          if (other !== name) for (const word of stems(other)) if (!words.includes(word)) own.forEach((one) => add(others, one, word));
      }
    return words.map((word) => [[word, 1], ...[...(others.get(word) ?? [])].map((other) => [other, SAME])]);
  };

  const overlap = (word, words) => {
    if (words.has(word)) return 1;
    if (word.length < 4) return 0;
    for (const one of words) if (one.length > 3 && (one.startsWith(word) || word.startsWith(one))) return PART;
    return 0;
  };

  const search = (query) => {
    prepared ??= prepare(Search._index);
    const { text, pages } = prepared;
    const alternatives = asked(query);
    const phrase = query.toLowerCase().trim();
    if (!alternatives.length) return [];
    const rarity = (word) => Math.log(1 + pages.length / (1 + (text.get(word)?.size ?? 0)));
    const weights = alternatives.map(([[word]]) => rarity(word));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    const all = alternatives.map(([[word]]) => word);
    const results = [];
    pages.forEach((page, number) => {
      const calledBest = Math.max(0, ...page.called.map((name) => likeness(name, all)));
      let score = 0;
      let covered = 0;
      alternatives.forEach((names, at) => {
        let best = 0;
        for (const [word, weight] of names) {
          const inText = text.get(word)?.has(number) ? TEXT : 0;
          best = Math.max(best, weight * Math.max(TITLE * overlap(word, page.words), inText));
        }
        for (const name of page.called) if (name.includes(all[at])) best = Math.max(best, SECTION);
        score += best * weights[at];
        if (best) covered += weights[at];
      });
      let section = null;
      let sectionBest = 0;
      for (const one of page.sections) {
        const own = new Set(one.words);
        let gain = 0;
        alternatives.forEach((names, at) => {
          gain += weights[at] * Math.max(...names.map(([word, weight]) => weight * overlap(word, own)));
        });
        // Titles that say little else are closer.
        gain *= (SECTION * (1 + all.length)) / (1 + Math.max(own.size, all.length));
        if (one.title.toLowerCase().includes(phrase)) gain += total * (phrase.length / one.title.length) * TITLE;
        if (gain > sectionBest) [section, sectionBest] = [one, gain];
      }
      covered = Math.max(covered, Math.min(total, sectionBest / SECTION));
      score = (score + sectionBest + total * TITLE * calledBest) * (covered / total) ** 2 * kindOf(page.name);
      if (page.title.toLowerCase().includes(phrase)) score += total * TITLE * (phrase.length / page.title.length) * kindOf(page.name);
      if (score > 0) results.push({ page, number, section: sectionBest >= total ? section : null, score });
    });
    results.sort((a, b) => b.score - a.score || a.page.name.localeCompare(b.page.name));
    return results.map(({ page, number, section, score }) => [
      page.name,
      section && section.title !== page.title ? `${page.title} > ${section.title}` : page.title,
      section?.anchor ?? "",
      section?.description ?? null,
      score,
      Search._index.filenames[number],
      section ? SearchResultKind.title : SearchResultKind.text,
    ]);
  };

  // How much of a name and of the query are the same.
  const likeness = (name, words) => {
    const common = name.filter((word) => words.includes(word)).length;
    return common === name.length || common === words.length ? common / Math.max(name.length, words.length) : 0;
  };

  Search._performSearch = (query) => search(query).slice(0, 50).reverse(); // shown from the last
}
