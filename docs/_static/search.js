// The order of the search's hits, in place of that of Sphinx, with its index. Sphinx asks for all words, scores a page by
// one of them, and sorts equals by name. Here a page counts the words that it has, rare ones more: those of its titles,
// its error messages and those that words.toml gives it more than those of its text. A long text has almost every word, so
// its words say less, and so do words that any question has. There is one hit a page, at its best section; but on a page of
// questions, each answer is a hit of its own. A few words name a thing: a recipe that has them comes before answers and
// reports about it, and its page opens at the top, where its card is, unless a section has words that its title lacks. A
// hit says what it is, and what a recipe is for.
"use strict";

{
  const WORDS = JSON.parse(document.getElementById("search-words").textContent);
  const TITLE = 5; // of the page, and what words.toml says people call it
  const SECTION = 3;
  const TEXT = 1;
  const SAME = 0.7; // a synonym, compared with the word itself
  const PART = 0.5; // the beginning or the end of a word
  const FILLER = 0.3; // a word that any question has, compared with others
  const SAYS = 0.35; // of the query: a section that says so much of it is shown, and else the page (a recipe's: half)
  const SHOWN = 20; // hits: a page is fetched for the excerpt of each
  const WORST = 0.1; // of the best hit's score
  const FEWEST = 3; // hits that are shown, however bad
  const ANSWERS = "guide/questions"; // pages of which each section is a hit of its own
  const ASKED = 5; // a word of the question, compared with one of a page's title
  const SAID = 4; // a word of its answer, which has few
  const COMMON = 4; // pages that may share a section's title
  const NAMES = { cookbook: "Recipe", guide: "Guide", errors: "Error", pitfalls: "Pitfall", reference: "Reference", glossary: "Glossary" };
  // Tables and what is generated come after pages that explain.
  const ASIDE = 0.5; // of the score of an answer or a report: so much has a recipe that comes before it
  const FEW = 4; // words
  const PURPOSE = 0.7; // a word of what a recipe is for, compared with one of its name
  const ANSWER = 0.5; // a word of what a section says, compared with one of its title
  const BESIDE = 0.6; // a section on a recipe's page that is not a recipe
  const KINDS = { cookbook: 1, guide: 1, errors: 0.9, pitfalls: 0.9, glossary: 0.7, reference: 0.4 };
  const OTHER = 0.5;

  const stemmer = new Stemmer();
  const split = (text) => text.toLowerCase().split(/[^\p{L}\p{N}_]+/u).filter((word) => word);
  // save_for_backward is found by each of its parts, and by all of them; torch.where by a word that else says nothing.
  const stems = (text) => {
    const whole = split(text);
    const parts = whole.filter((word) => word.includes("_")).flatMap((word) => word.split("_").filter((part) => part));
    const named = [...text.toLowerCase().matchAll(/[\p{L}\d]\.(\p{L}+)/gu)].map(([, name]) => name);
    const kept = [...whole, ...parts].filter((word) => !stopwords.has(word) || named.includes(word));
    return [...new Set(kept.map((word) => stemmer.stemWord(word)))];
  };
  const fillers = new Set(WORDS.fillers.map((word) => stemmer.stemWord(word)));
  const add = (map, key, value) => map.get(key)?.add(value) ?? map.set(key, new Set([value]));

  const behind = new Set(WORDS.behind);
  const asks = (query) => /[?]|^(why|how|what|when|where|which|who|is|are|does|do|can|should|must)\b/i.test(query);
  const isOfAnswers = (name) => name.startsWith(ANSWERS);
  const isRecipe = (name) => name in WORDS.purposes;
  const kindOf = (name) => {
    const kind = name.split("/")[0];
    return name.endsWith("index") ? OTHER : (KINDS[kind] ?? OTHER);
  };

  const prepare = ({ docnames, titles, alltitles, terms, indexentries, objects, objnames }) => {
    const text = new Map();
    for (const [term, pages] of Object.entries(terms))
      for (const word of new Set([term.toLowerCase(), ...stems(term)]))
        for (const page of [pages].flat()) add(text, word, page);
    const pages = docnames.map((name, file) => ({
      name,
      file,
      title: titles[file],
      words: new Set(stems(titles[file])),
      text: new Set(),
      called: (WORDS.pages[name] ?? []).map(stems),
      sections: [],
    }));
    for (const [word, found] of text) for (const page of found) pages[page].text.add(word);
    // A page of answers has almost every word, and so says nothing of what stands together in it.
    const answer = ({ name, file }, title, anchor) => {
      const names = [title, ...(WORDS.sections[name + anchor] ?? [])];
      const sections = names.map((said) => ({ title, said, anchor, words: new Set(stems(said)), more: new Set(), worth: 0 }));
      const words = new Set(stems(title));
      pages.push({ name, file, title, anchor, words, text: new Set(stems(WORDS.answers[name + anchor] ?? "")), called: [], sections });
    };
    // What a section is found by besides, and what a word of it counts.
    const beyond = (name, anchor, purpose) =>
      purpose === null
        ? { more: new Set(stems(WORDS.answers[name + anchor] ?? "")), worth: ANSWER }
        : { more: new Set(stems(purpose)), worth: PURPOSE };
    // `said` is what the section is found by.
    const section = (page, title, anchor, purpose = null, said = title) =>
      pages[page].sections.push({ title, said, anchor, words: new Set(stems(said)), ...beyond(pages[page].name, anchor, purpose), recipe: purpose !== null });
    for (const [title, places] of Object.entries(alltitles))
      for (const [page, anchor] of places)
        if (anchor !== null && isOfAnswers(docnames[page])) answer(pages[page], title, `#${anchor}`);
        // A title of many pages, such as "The gradient", says nothing about one.
        else if (anchor !== null && places.length <= COMMON) {
          section(page, title, `#${anchor}`);
          for (const other of WORDS.sections[`${docnames[page]}#${anchor}`] ?? []) section(page, title, `#${anchor}`, null, other);
          if (anchor in WORDS.messages) section(page, title, `#${anchor}`, null, WORDS.messages[anchor]);
        }
    for (const [name, [place, purpose]] of Object.entries(WORDS.recipes))
      if (docnames.includes(place)) section(docnames.indexOf(place), name, `#recipe-${name}`, purpose);
    for (const [entry, places] of Object.entries(indexentries))
      for (const [page, anchor, main] of places) if (docnames[page] === "glossary") section(page, entry, `#${anchor}`);
    for (const [prefix, entries] of Object.entries(objects))
      for (const [page, type, , anchor, name] of entries) {
        const full = prefix ? `${prefix}.${name}` : name;
        const [domain, role] = objnames[type];
        const target = anchor === "" ? full : anchor === "-" ? `${role}-${full}` : anchor;
        if (domain === "py") section(page, name, `#${target}`);
        // A name of a recipe leads to its page too.
        const recipe = prefix.split(".").pop();
        const home = pages.find((one) => one.name.startsWith("cookbook/") && one.name.endsWith(`/${recipe}`));
        home?.called.push(stems(name));
      }
    for (const [weight, kind] of [[TEXT, pages.slice(0, docnames.length)], [SAID, pages.slice(docnames.length)]]) {
      const mean = kind.reduce((sum, page) => sum + page.text.size, 0) / kind.length;
      for (const page of kind) page.says = weight * Math.min(1, Math.sqrt(mean / Math.max(1, page.text.size)));
    }
    return { text, pages: pages.filter((page) => page.anchor || !isOfAnswers(page.name)) };
  };

  let prepared = null;

  // Each word of the query, with what else it may be called: [[words, weight], ...].
  const asked = (query) => {
    const words = stems(query);
    const others = new Map();
    for (const group of WORDS.same.map((names) => names.map(stems)))
      for (const name of group)
        if (name.length && name.every((word) => words.includes(word)))
          for (const other of group) if (other !== name) for (const word of name) add(others, word, other);
    return words.map((word) => [[[word], 1], ...[...(others.get(word) ?? [])].map((other) => [other, SAME])]);
  };

  const overlap = (word, words) => {
    if (words.has(word)) return 1;
    if (word.length < 4) return 0;
    for (const one of words) if (one.length > 3 && (one.startsWith(word) || word.startsWith(one))) return PART;
    return 0;
  };

  // The best that one of the names of a word gets, where each word of a name gets what `points` says.
  const best = (names, points) =>
    Math.max(...names.map(([words, weight]) => (weight * words.reduce((sum, word) => sum + points(word), 0)) / words.length));

  const search = (query) => {
    prepared ??= prepare(Search._index);
    const { text, pages } = prepared;
    const alternatives = asked(query);
    if (!alternatives.length) return [];
    const phrase = query.toLowerCase().trim();
    const all = alternatives.map(([[[word]]]) => word);
    const rarity = (word) => Math.log(1 + pages.length / (1 + (text.get(word)?.size ?? 0)));
    const weights = all.map((word) => rarity(word) * (fillers.has(word) ? FILLER : 1));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    const sumOf = (points) => alternatives.reduce((sum, names, at) => sum + weights[at] * best(names, points), 0);
    const same = (title) => (title.toLowerCase().includes(phrase) ? phrase.length / title.length : 0);
    // What the whole query may be called.
    const names = alternatives[0].filter((name) => alternatives.every((others) => name === others[0] || others.includes(name)));
    names[0] = [all, 1];
    const rare = (word) => (text.get(word)?.size ?? 0) < pages.length / 2;
    const namedBy = (points) => sumOf((word) => rare(word) && points(word)) / sumOf(rare);
    const results = [];
    const few = split(query).length <= FEW && !asks(query);
    pages.forEach((page) => {
      const called = new Set(page.called.flat());
      const inPage = (word) =>
        Math.max(
          (page.anchor ? ASKED : TITLE) * overlap(word, page.words),
          called.has(word) ? SECTION : 0,
          page.text.has(word) ? page.says : 0,
        );
      let [section, gain, covered, says] = [null, 0, 0, 0];
      for (const one of page.sections) {
        const found = sumOf((word) => Math.max(overlap(word, one.words), one.worth * overlap(word, one.more)));
        if (!found) continue;
        // What the top of a recipe's page says, a section need not say again.
        const beside = isRecipe(page.name) && !one.recipe;
        if (beside && few && !sumOf((word) => Math.max(0, overlap(word, one.words) - overlap(word, page.words)))) continue;
        // A title that says little else is closer.
        const closeness = Math.sqrt((1 + all.length) / (1 + Math.max(one.words.size, all.length)));
        // All of a recipe's name.
        const named = one.recipe && [...one.words].every((word) => all.includes(word));
        const own = (beside && few ? BESIDE : 1) * (SECTION * found * closeness + TITLE * total * same(one.said)) + (named ? TITLE * found : 0);
        if (own > gain) [section, gain, covered, says] = [one, own, found, sumOf((word) => Math.max(overlap(word, one.words), overlap(word, one.more)))];
      }
      const said = (word) => (section?.recipe ? Math.max(overlap(word, section.words), PURPOSE * overlap(word, section.more)) : 0);
      const inText = sumOf((word) => Math.min(1, inPage(word)));
      const share = Math.min(1, Math.max(inText, covered) / total);
      const name = Math.max(0, ...page.called.flatMap((words) => names.map(([other, weight]) => weight * likeness(words, other))));
      // The title of an answer is that of its section, which has counted it.
      const score = sumOf(inPage) + gain + TITLE * total * (name + (page.anchor ? 0 : same(page.title)));
      if (share)
        results.push({
          page,
          section: page.anchor ? page : (isRecipe(page.name) ? covered > total / 2 : says > SAYS * total) ? section : null,
          // A recipe's page whose title, other names or recipe have most of it, words that most pages have aside.
          names: isRecipe(page.name) && namedBy((word) => Math.max(overlap(word, page.words), called.has(word), said(word))) > 0.5,
          // A page that has few of the words is about something else; an answer is short, and need not repeat the question.
          score: score * share ** (page.anchor ? 1 : 2) * kindOf(page.name),
        });
    });
    const recipes = results.filter(({ names }) => names);
    if (few)
      for (const one of results)
        if (behind.has(one.page.name) && recipes.some(({ score }) => score >= ASIDE * one.score))
          one.score *= ASIDE;
    results.sort((a, b) => b.score - a.score || a.page.name.localeCompare(b.page.name));
    // The reference of a recipe says what its page says.
    const homes = new Set(results.map(({ page }) => isRecipe(page.name) && page.name.split("/").pop()));
    const again = ({ page }) => page.name.startsWith("reference/") && homes.has(page.name.split(".").pop());
    const useful = results.filter((one, at) => !again(one) && (at < FEWEST || one.score >= WORST * results[0].score));
    return useful.map(({ page, section, score }) => {
      const title = Search._index.titles[page.file];
      const part = section && section.title !== title ? section.title : null;
      const purpose = section?.recipe ? WORDS.recipes[part]?.[1] : WORDS.purposes[page.name];
      const hit = [
        page.name,
        part ? `${title} > ${part}` : title,
        section?.anchor ?? "",
        purpose ?? null, // with which Sphinx fetches no page for an excerpt
        score,
        Search._index.filenames[page.file],
        section ? SearchResultKind.title : SearchResultKind.text,
      ];
      const kind = isOfAnswers(page.name) ? "Question" : (NAMES[page.name.split("/")[0]] ?? "Page");
      return Object.assign(hit, { shown: { kind, title: part ?? title, line: purpose ?? (part ? title : "") } });
    });
  };

  // How much of a name and of the query are the same.
  const likeness = (name, words) => {
    const common = name.filter((word) => words.includes(word)).length;
    return common === name.length || common === words.length ? common / Math.max(name.length, words.length) : 0;
  };

  // What a hit is, what it is called, and what it is for or where it stands.
  Search.show = (link, { shown }) =>
    link.replaceChildren(
      ...Object.entries(shown)
        .filter(([, text]) => text)
        .map(([part, textContent]) => Object.assign(document.createElement("span"), { className: `hit-${part}`, textContent })),
    );

  // The page of hits is made by Sphinx, hit by hit, in their order.
  let hits = [];
  const place = document.getElementById("search-results");
  if (place)
    new MutationObserver(() =>
      place.querySelectorAll("li").forEach((item, at) => {
        const link = item.querySelector("a");
        if (!hits[at] || link.querySelector(".hit-kind")) return;
        Search.show(link, hits[at]);
        if (hits[at][3]) link.nextElementSibling?.remove(); // it is in the link
      }),
    ).observe(place, { childList: true, subtree: true });

  Search._performSearch = (query) => {
    hits = search(query).slice(0, SHOWN);
    return [...hits].reverse(); // shown from the last
  };
}
