// The order of the search's hits, in place of that of Sphinx. Each section has points for each of its words, made by
// search_index.py: here they are added. A hit is the best section of a page; on a page of questions, each answer is a hit
// of its own. A few words name a thing: the page that is called so comes first, and opens at the top, where its card is, or
// at the recipe of that name. A hit says what it is, and what a recipe is for.
"use strict";

{
  const WORDS = JSON.parse(document.getElementById("search-words").textContent);
  const SAME = 0.6; // a synonym, compared with the word itself
  const PART = 0.5; // the beginning of a word
  const FILLER = 0.5; // a word that any question has, compared with others
  const NAMED = 3; // what a page gains whose names have all words
  const SAME_NAME = 8; // and one that is called just so
  const TOP = 0.85; // what begins a page, compared with its sections, if more words ask something
  const BESIDE = 0.7; // an answer, if a page is called as a few words say
  const SAID = 1; // what a section gains whose title has the query word for word, and a share of it for a piece
  const QUOTED = 2; // and one whose message has it
  const PIECE = 5; // words at least
  const LONG = 30; // words of a query of which pieces are made
  const FEW = 4; // words
  const SHOWN = 20; // hits: a page is fetched for the excerpt of each
  const WORST = 0.2; // of the best hit's points
  const FEWEST = 3; // hits that are shown, however bad
  const ANSWERS = "guide/questions"; // pages of which each section is a hit of its own
  const KINDS = { cookbook: "Recipe", guide: "Guide", errors: "Error", pitfalls: "Pitfall", reference: "Reference", glossary: "Glossary" };

  const stemmer = new Stemmer();
  const unique = (words) => [...new Set(words)];
  // As in search_index.py.
  const stems = (text) => {
    const whole = text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? [];
    const parts = whole.filter((word) => word.includes("_")).flatMap((word) => word.split("_").filter((part) => part));
    const joined = (text.toLowerCase().match(/[\p{L}\p{N}_]+(?:-[\p{L}\p{N}_]+)+/gu) ?? []).map((word) => word.replaceAll("-", ""));
    const dotted = new Set([...text.toLowerCase().matchAll(/[\p{L}\p{N}]\.(\p{L}+)/gu)].map(([, name]) => name));
    const paths = text.toLowerCase().match(/[\p{L}_][\p{L}\p{N}_]*(?:\.[\p{L}_][\p{L}\p{N}_]*)+/gu) ?? [];
    const kept = [...whole, ...parts, ...joined, ...paths].filter((word) => !stopwords.has(word) || dotted.has(word));
    return unique(kept.map((word) => stemmer.stemWord(word)));
  };
  const asks = (query) => /[?]|^(why|how|what|when|where|which|who|is|are|does|do|can|should|must)\b/i.test(query);
  const fillers = new Set(WORDS.fillers);
  const called = new Map(Object.entries(WORDS.called));
  const sections = WORDS.sections.map(([page, anchor, title]) => {
    const recipe = anchor.startsWith("recipe-");
    return { page, anchor, title, recipe, words: recipe ? stems(title) : [] };
  });
  const isOfAnswers = (page) => page.startsWith(ANSWERS);
  const isRecipe = (page) => page in WORDS.purposes;

  // The points of the sections that have a word: [[section, points], ...].
  const having = (word) => {
    const flat = WORDS.words[word] ?? [];
    let number = 0;
    return Array.from({ length: flat.length / 2 }, (_, i) => [(number += flat[2 * i]), flat[2 * i + 1]]);
  };
  const best = (rows) => {
    const most = new Map();
    for (const [number, points] of rows) most.set(number, Math.max(points, most.get(number) ?? 0));
    return most;
  };
  // A word that no section has is the beginning of others, or is one with an ending.
  const whole = (word) =>
    word in WORDS.words || word.length < 4
      ? having(word)
      : Object.keys(WORDS.words)
          .filter((other) => other.length > 3 && (other.startsWith(word) || word.startsWith(other)))
          .flatMap((other) => having(other).map(([number, points]) => [number, PART * points]));

  // Each word of a query with what else it may be called: [[words, weight], ...].
  const alternatives = (words) =>
    words.map((word) => {
      const groups = WORDS.same.filter((names) => names.some((name) => name.includes(word) && name.every((each) => words.includes(each))));
      return [[[word], 1], ...groups.flat().filter((name) => !name.includes(word)).map((name) => [name, SAME])];
    });
  const pointsOf = (names) => {
    const rows = names.flatMap(([words, weight]) => {
      const sum = new Map();
      for (const word of words) for (const [number, points] of best(whole(word))) sum.set(number, (sum.get(number) ?? 0) + points);
      return [...sum].map(([number, points]) => [number, (weight * points) / words.length]);
    });
    return best(rows);
  };

  const search = (query) => {
    const words = stems(query);
    const named = alternatives(words);
    const points = new Map();
    words.forEach((word, at) => {
      const weight = fillers.has(word) ? FILLER : 1;
      for (const [number, own] of pointsOf(named[at])) points.set(number, (points.get(number) ?? 0) + weight * own);
    });
    const few = (query.match(/[\p{L}\p{N}_]+/gu) ?? []).length <= FEW && !asks(query);
    const telling = named.filter(([[[word]]]) => !fillers.has(word));
    const within = (other) => (telling.length ? telling : named).every((names) => names.some(([all]) => all.every((word) => other.includes(word))));
    // What the whole query may be called.
    const alike = named.length ? named[0].map(([all]) => all).filter((all) => named.every((names) => names.some(([other]) => other === all))) : [];
    const same = (name) => [words, ...alike].some((all) => all.length === name.length && all.every((word) => name.includes(word)));
    const gains = new Map([...called].map(([page, names]) => [page, !few ? 1 : names.some(same) ? SAME_NAME : !isOfAnswers(page) && names.some(within) ? NAMED : 1]));
    const isName = [...gains].some(([page, gain]) => gain > 1 && !isOfAnswers(page));
    // The longest pieces come first: a message has other words around it, as it is typed.
    const typed = query.toLowerCase().trim().split(/\s+/).slice(0, LONG);
    const pieces = typed.flatMap((_, less) => {
      const length = typed.length - less;
      const starts = length < Math.min(PIECE, typed.length) || length < 2 ? [] : [...Array(less + 1).keys()];
      return starts.map((at) => [typed.slice(at, at + length).join(" "), length / typed.length]);
    });
    const share = (text) => pieces.find(([piece]) => text.toLowerCase().includes(piece))?.[1] ?? 0;
    const said = ({ title, anchor }) => 1 + Math.max(QUOTED * share(WORDS.messages[anchor] ?? ""), SAID * share(title));
    const hits = new Map();
    for (const [number, own] of points) {
      const section = sections[number];
      const { page, anchor, recipe } = section;
      const beside = isOfAnswers(page) && isName ? BESIDE : 1;
      const place = few || anchor ? 1 : TOP;
      const gain = beside * place * gains.get(page) * (recipe && same(section.words) ? SAME_NAME : 1);
      if (gain > 1 && anchor && !recipe && isRecipe(page)) continue;
      const score = own * gain * said(section);
      const hit = isOfAnswers(page) ? `${page}#${anchor}` : page;
      if (score > (hits.get(hit)?.score ?? 0)) hits.set(hit, { ...section, score });
    }
    const results = [...hits.values()].sort((a, b) => b.score - a.score || a.page.localeCompare(b.page));
    // The reference of a recipe says what its page says.
    const homes = new Set(results.map(({ page }) => isRecipe(page) && page.split("/").pop()));
    const again = ({ page }) => page.startsWith("reference/") && homes.has(page.split(".").pop());
    return results
      .filter((one) => !again(one))
      .filter(({ score }, at) => at < FEWEST || score >= WORST * results[0].score)
      .map(({ page, anchor, title, recipe, score }) => {
        const top = WORDS.titles[page];
        const purpose = recipe ? WORDS.recipes[title] : WORDS.purposes[page];
        const hit = [
          page,
          anchor ? `${top} > ${title}` : top,
          anchor && `#${anchor}`,
          purpose ?? null, // with which Sphinx fetches no page for an excerpt
          score,
          Search._index?.filenames[Search._index.docnames.indexOf(page)],
          anchor ? SearchResultKind.title : SearchResultKind.text,
        ];
        const kind = isOfAnswers(page) ? "Question" : (KINDS[page.split("/")[0]] ?? "Page");
        return Object.assign(hit, { shown: { kind, title: anchor ? title : top, line: purpose ?? (anchor ? top : "") } });
      });
  };

  Search.stems = stems; // for a test

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
