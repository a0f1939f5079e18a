// Finds what a pasted text means, as autograd_cookbook.errors does: the same data, interpreted in the same way. A browser
// test compares the two on every message. Names and order of the functions are those of paste.py, topics.py, matching.py,
// answering.py.
"use strict";

const LONGEST = 4000;
const LAST_OF = 200000;
const MOST_MESSAGES = 24;
const TERMINAL = 80;
const NARROWEST = 60;
const BREAK = "-".repeat(8);
const TOKENS = 240;
const CANDIDATES = 16;
const MOST_ENTRIES = 3;
const LINE = 200;
const SAID = 600;
const FRAMES = 2;
const PARTS = 3;
const WORDS = 80;
const SEARCHED = 40;
const EXACT = 10000;
const TOLD_WORDS = 4000; // the characters of a text whose words are clues
const EXACT_SCORE = 1000000;
const AROUND = /^(?:not )?(?:text|printed|own|frames|end|place|raiser|raised|told|tried|about): /;
const MARK = "0"; // in front of the name of a concept: no word begins with it

const patterns = new Map();
const compiled = (pattern, flags = "") => {
  const key = flags + pattern;
  if (!patterns.has(key)) patterns.set(key, new RegExp(pattern, flags));
  return patterns.get(key);
};
const atStart = (pattern) => compiled(`^(?:${pattern})`);
const cut = (text) => [...text.slice(0, 2 * LONGEST)].slice(0, LONGEST).join("").trim();
const indentation = (line) => line.length - line.trimStart().length;
const sum = (numbers) => numbers.reduce((total, n) => total + n, 0);

// --- paste.py ---

const cleaned = (text, rules) => {
  rules.clean.forEach(([pattern, instead]) => (text = text.replace(compiled(pattern, "g"), () => instead)));
  const prefix = compiled(`^(?:${rules.prefixes.join("|")})+`);
  const suffix = compiled(rules.suffix, "g");
  const record = atStart(rules.record);
  const lines = [];
  let within = true;
  unwrapped(text.split("\n"), atStart(rules.wrapped)).forEach((line) => {
    const begins = record.test(line);
    if (begins && !within) lines.push(BREAK);
    within = begins || (within && !line.trim());
    lines.push(line.replace(prefix, "").replace(suffix, ""));
  });
  return lines.join("\n");
};

const unwrapped = (lines, goesOn) => {
  const found = lines.slice(0, 1);
  let width = TERMINAL;
  lines.slice(1).forEach((line, i) => {
    const before = [...lines[i]].length;
    const more = goesOn.test(line);
    if (more && NARROWEST <= before && before === [...line].length) width = before;
    else if (!more || before !== width) width = TERMINAL;
    if (more && before === width) found.push(found.pop() + line);
    else found.push(line);
  });
  return found;
};

const split = (text, rules) => {
  const printed = text.slice(-LAST_OF);
  text = cleaned(printed, rules);
  const { frames, blocks } = blocksOf(text.split("\n"), rules);
  const found = [];
  const prose = [];
  blocks.forEach((block) => messagesOf({ ...block, text: block.lines.join("\n").trim() }, rules, found, prose));
  const said = frames.length ? compiled(rules.raises).exec(frames.at(-1).code) : null;
  if (said) found.push({ kind: said.groups.kind || "AssertionError", text: said.groups.text, part: "cause" });
  const last = found.findLastIndex((message) => message.part === "last");
  found.forEach((message, i) => {
    const place = message.place ?? (i === last ? frames.at(-1) : null);
    if (place?.code.startsWith("assert ") && !message.text) message.text = place.code.slice("assert ".length);
  });
  found.forEach((message, i) => {
    if (message.part === "last" && i !== last) message.part = "earlier";
  });
  const written = prose.slice(0, MOST_MESSAGES).map((part) => ({ kind: "", text: part, part: "prose" }));
  const chained = compiled(rules.chained).test(text);
  return { text, messages: [...found.reverse().slice(0, MOST_MESSAGES), ...written], frames, chained, printed };
};

const blocksOf = (lines, rules) => {
  const places = rules.frames.map(atStart);
  const [listing, pointer, stops] = [rules.listing, rules.pointer, rules.stops].map(atStart);
  const arrow = compiled(rules.arrow);
  const heading = compiled(rules.heading);
  const at = (i) => {
    for (const place of places) {
      const match = place.exec(lines[i]);
      if (match) return match;
    }
    return null;
  };
  const frames = [];
  const blocks = [{ lines: [], chained: false, place: null }];
  let i = 0;
  while (i < lines.length) {
    const match = at(i);
    if (!match) {
      if (stops.test(lines[i])) {
        blocks.at(-1).chained = lines[i].includes("The above exception was");
        blocks.push({ lines: [], chained: false, place: null });
      } else if (!listing.test(lines[i])) {
        blocks.at(-1).lines.push(lines[i]);
      }
      i += 1;
      continue;
    }
    const depth = indentation(lines[i]);
    const shown = [];
    i += 1;
    while (i < lines.length && !at(i) && !stops.test(lines[i])) {
      const line = lines[i];
      if (line.trim() && !listing.test(line) && indentation(line) <= depth) {
        if (shown.some((each) => each.trim()) || heading.test(line)) break;
      }
      shown.push(line);
      i += 1;
    }
    let marked = shown.filter((line) => pointer.test(line));
    if (!marked.length) marked = shown.filter((line) => line.trim());
    const { file, line, function: name } = match.groups;
    frames.push({
      file: (file ?? "").trim(),
      line: Number(line ?? 0),
      function: (name ?? "").trim(),
      code: marked.length ? marked[0].replace(arrow, "").trim() : "",
      around: shown.join("\n"),
    });
    blocks.push({ lines: [], chained: false, place: frames.at(-1) });
  }
  return { frames, blocks };
};

const messagesOf = ({ text: block, chained, place }, rules, found, prose) => {
  if (!block) return;
  let headings = [...block.matchAll(compiled(rules.heading, "gm"))];
  if (!headings.length) headings = [...block.matchAll(compiled(rules.bare, "gm"))];
  const told = [headings.length ? block.slice(0, headings[0].index) : block];
  headings.forEach((match) => {
    let text = block.slice(match.index + match[0].length);
    // In a sentence, the words after the quotation mark are the reader's own.
    const [quoted] = compiled(rules.quoted[match[0][0]] ?? "(?!)").exec(text) ?? [];
    if (quoted) {
      if (match === headings.at(-1)) told.push(text.slice(quoted.length + 1));
      text = quoted;
    }
    const kind = match.groups.kind.split(".").at(-1);
    const part = compiled(rules.warning).test(kind) ? "warning" : chained ? "cause" : "last";
    found.push({ kind, text: cut(text), part, place: match === headings[0] ? place : null });
  });
  told.forEach((each) => {
    const whole = each.trim();
    const parts = whole.split(/\n\s*\n/);
    [...(parts.length > 1 ? [whole] : []), ...parts].forEach((one) => {
      const row = cut(one.trim());
      if (row.length > 3) prose.push(row);
    });
  });
};

// --- topics.py ---

class Topics {
  constructor(entries, rules, known) {
    this.entries = entries;
    this.rules = rules;
    this.known = known;
    this.about = entries.map((entry) => entry.about ?? []);
    this.texts = entries.map((entry, i) => plain(fields(entry).join(" ")) + inMarks(this.about[i]));
    this.asked = entries.map((entry) => (entry.asked ? ` ${entry.asked} ` : ""));
    const mean = sum(this.texts.map((text) => text.length)) / Math.max(this.texts.length, 1);
    this.lengths = this.texts.map((text) => 1 - rules.length + (rules.length * text.length) / mean);
  }

  words(paste, message) {
    const text = question(paste, message, this.rules);
    return [...words(text, this.rules)].slice(0, WORDS).concat(concepts(text, this.known).map((name) => inMarks([name])));
  }

  // The entries that have the most of the text's words, with the best first, and the order of all entries.
  rank(searched) {
    if (this.ranked && this.ranked.searched.join() === searched.join()) return this.ranked;
    const count = this.texts.length;
    const [shares, telling, shared] = [0, 1, 2].map(() => new Array(count).fill(0));
    const weights = [];
    let total = 0;
    searched.forEach((word) => {
      const having = [...this.texts.keys()].filter((i) => this.texts[i].includes(word));
      const weight = having.length ? Math.log((count + 1) / (having.length + 0.5)) : this.rules.unknown;
      total += weight;
      weights.push([word, weight]);
      having.forEach((i) => {
        shares[i] += weight;
        telling[i] += weight > this.rules.rare;
        shared[i] += word[1] === MARK;
      });
      this.asked.forEach((text, i) => text.includes(word) && (shares[i] += this.rules.asked * weight));
    });
    const share = (i) => Math.trunc((EXACT * shares[i]) / this.lengths[i]);
    const order = [...shares.keys()].sort((a, b) => share(b) - share(a) || a - b);
    const found = order
      .slice(0, SEARCHED)
      .map((i) => {
        const rows = [...fields(this.entries[i]).map(plain), inMarks(this.about[i])];
        const again = sum(weights.map(([word, weight]) => weight * rows.filter((row) => row.includes(word)).length));
        const score = (shares[i] + this.rules.again * again) / this.lengths[i];
        return { entry: i, score, share: shares[i] / Math.max(total, 1e-9), telling: telling[i], concepts: shared[i] };
      })
      .sort((a, b) => Math.trunc(b.score * EXACT) - Math.trunc(a.score * EXACT) || a.entry - b.entry)
      .slice(0, this.rules.most);
    this.ranked = { searched, found, order };
    return this.ranked;
  }
}

const fields = (entry) => {
  const told = (...names) => names.flatMap((name) => entry[name] || []).join(" ");
  return [told("title"), entry.said, told("change", "more"), told("cause", "tell")];
};

const inMarks = (names) => ` ${names.map((name) => MARK + name).join(" ")} `;

const concepts = (text, known) => {
  const lowered = text.toLowerCase();
  return Object.keys(known).filter((name) => compiled(known[name]).test(lowered));
};

const plain = (text) => ` ${text.toLowerCase().replace(/[^a-z0-9]/gu, " ")} `;

const question = (paste, message, rules) =>
  [
    ...(message ? [[...shownMessage(message).slice(0, 2 * SAID)].slice(0, SAID).join("")] : []),
    ...paste.messages
      .filter(({ part }) => part === "prose")
      .slice(0, PARTS)
      .map(({ text }) => text),
    ...paste.frames.filter((frame) => !compiled(rules.engine).test(frame.file)).slice(-FRAMES).map((frame) => `${frame.function} ${frame.code}`),
  ].join("\n");

// The stems of a text's words; names of several words as a whole, too.
const words = (text, rules) => {
  const common = new Set(rules.common);
  const seen = new Set();
  for (const [name] of text.replace(compiled(rules.skip, "g"), " ").matchAll(compiled(rules.word, "g"))) {
    const parts = name.toLowerCase().split("_").filter(Boolean);
    if (parts.length > 1) seen.add(` ${parts.join(" ")} `);
    parts.filter((part) => part.length > 2 && !common.has(part)).forEach((part) => seen.add(` ${stem(part, rules.endings)}`));
  }
  return seen;
};

const stem = (word, endings) => {
  const ending = endings.find((each) => word.endsWith(each) && word.length - each.length >= 4);
  return ending ? word.slice(0, -ending.length) : word;
};

// --- matching.py ---

class Matcher {
  constructor(index) {
    this.rules = index.rules;
    this.entries = index.entries;
    this.answers = [...index.entries, ...index.questions];
    this.drop = new Set(this.rules.tokens.drop);
    this.plain = new Set(this.rules.tokens.plain);
    this.nodes = new Set(index.nodes);
    // The operators that have a derivative in the torch of the index, and those whose derivative it lacks.
    this.formulas = new Set([...index.nodes, ...index.derivatives.have].map(squashed));
    this.lacking = new Set(index.derivatives.lack);
    const wordings = new Map();
    this.entries.forEach((entry, number) =>
      entry.wordings.forEach(([lead, tail, kind]) => {
        const key = `${lead}\n${tail}`;
        if (!wordings.has(key)) wordings.set(key, { lead: lead.split(" "), tail: tail ? tail.split(" ") : [], owners: [] });
        wordings.get(key).owners.push({ number, kind });
      }),
    );
    this.wordings = [...wordings.values()];
    this.having = new Map();
    this.wordings.forEach(({ lead }, i) =>
      new Set(lead).forEach((word) => {
        if (word === "*" || word === "<number>") return;
        if (!this.having.has(word)) this.having.set(word, []);
        this.having.get(word).push(i);
      }),
    );
    this.weight = new Map();
    this.having.forEach((found, word) => {
      const owners = new Set(found.map((i) => this.wordings[i].owners[0].number));
      this.weight.set(word, this.weighted(word, Math.log(1 + this.entries.length / owners.size)));
    });
    this.wordings.forEach((wording) => {
      wording.plainly = sum(wording.lead.map((word) => this.tells(word))) < 2;
      wording.total = sum(wording.lead.map((word) => this.weight.get(word) ?? 0));
      wording.telling = [...new Set(wording.lead)].filter((word) => this.tells(word)).map((word) => [word, this.weight.get(word)]);
      wording.distinct = sum([...new Set(wording.lead)].map((word) => this.weight.get(word) ?? 0));
    });
  }

  // Of the texts of the entries, for what has no message.
  get topics() {
    return (this.searched ??= new Topics(this.answers, this.rules.topics, this.rules.concepts));
  }

  weighted(word, rarity) {
    if (word[0] === "<") return this.rules.tokens.variable_weight;
    return this.plain.has(word) ? rarity * this.rules.tokens.plain_weight : rarity;
  }

  tells(word) {
    return "<*".includes(word[0]) || this.plain.has(word) ? 0 : word.includes("_") ? 2 : 1;
  }

  weigh(word) {
    if (word === "<number>") return 0;
    const unknown = this.rules.tokens.unknown_weight;
    return this.weight.get(word) ?? Math.min(unknown, this.weighted(word, unknown));
  }

  read(message) {
    const typed = this.weight.has(message.kind.toLowerCase());
    let text = typed ? `${message.kind}: ${message.text}` : message.text;
    if (message.part === "prose") {
      const told = text.replace(compiled(this.rules.paste.statement, "gm"), "");
      if (told.trim()) text = told;
    }
    return tokenized(text, this.rules.tokens, this.drop);
  }

  values(message) {
    const text = this.read(message);
    return text.tokens.length ? captured(text, 0, text.tokens.length - 1) : {};
  }

  rank(paste, facts) {
    const best = new Map();
    const worth = (match) => match.score + this.rules.score.proven * match.proven;
    paste.messages.forEach((message) =>
      this.matches(message, facts).forEach((match) => {
        const other = best.get(match.entry);
        if (!other || worth(match) > worth(other)) best.set(match.entry, match);
      }),
    );
    this.symptoms(paste, facts).forEach((match) => {
      if (!(best.get(match.entry)?.score >= match.score)) best.set(match.entry, match);
    });
    const exact = (match) => Math.trunc(match.score * EXACT_SCORE);
    return [...best.values()].sort((a, b) => exact(b) - exact(a) || a.entry - b.entry);
  }

  // What has no message, known by the words in which readers tell it: never certain.
  symptoms(paste, facts) {
    const told = paste.messages.find((message) => message.part === "prose") ?? paste.messages[0] ?? NOTHING;
    const { symptom, concepts: alike } = this.rules.score;
    const base = ({ signs = [], ways = [] }) =>
      signs.some((each) => each.every((sign) => facts.holds(sign, told, {}))) ? symptom : ways.some((way) => facts.tells(way)) ? alike : 0;
    return this.entries.flatMap((entry, number) => {
      let found = base(entry);
      const spare = Math.max(-1, ...(entry.clues ?? []).map((clues) => facts.spared(clues)));
      if (spare >= 0) found = Math.max(found, symptom) + this.rules.score.clue * Math.min(spare, 2);
      if (!found) return [];
      const score = found + facts.evidence(entry, told, {}, false);
      const weight = Number(spare >= 0);
      return [{ entry: number, wording: null, message: told, score, share: 0, weight, values: {}, proven: true, certain: false }];
    });
  }

  matches(message, facts) {
    const text = this.read(message);
    const shared = new Map();
    const positions = new Map();
    const sums = [0];
    text.tokens.forEach((word, j) => {
      if (!positions.has(word)) {
        positions.set(word, []);
        (this.having.get(word) ?? []).forEach((i) => shared.set(i, (shared.get(i) ?? 0) + this.weight.get(word)));
      }
      positions.get(word).push(j);
      sums.push(sums.at(-1) + this.weigh(word));
    });
    const worth = (i) => (shared.get(i) * shared.get(i)) / Math.max(this.wordings[i].distinct, 1);
    return [...shared.keys()]
      .sort((a, b) => worth(b) - worth(a) || a - b)
      .slice(0, CANDIDATES)
      .flatMap((i) => this.compared(this.wordings[i], message, text, positions, sums, facts));
  }

  compared(wording, message, text, positions, sums, facts) {
    const rules = this.rules.score;
    const { matched, first, last } = chain(wording.lead, positions, sums, this.weight, rules);
    const total = Math.max(wording.total, 1e-9);
    const share = matched / total;
    const explained = Math.min(1, matched / Math.max(sums[text.ends[last]] - sums[text.starts[first]], 1e-9));
    let score = share * (1 - rules.explained + rules.explained * explained);
    const values = captured(text, first, last);
    const near = rules.certain.some((sign) => facts.holds(sign, message, values));
    const about = near || facts.holds(rules.proof, message, values);
    if (wording.plainly && share < rules.whole) score *= share;
    else if (matched >= rules.enough && share >= rules.piece) score = Math.max(score, explained * (0.5 + 0.45 * share));
    if (share < rules.half && explained < rules.among && matched < rules.heavy) score *= rules.strewn;
    if (wording.plainly && message.part === "prose" && explained < rules.among) score *= rules.strewn;
    let { telling } = wording;
    const unfinished = compiled(rules.unfinished).test(message.text);
    if (matched >= rules.enough && last >= text.tokens.length - 1 - (unfinished ? rules.unfinished_tokens : 0)) {
      const begin = wording.lead.slice(0, wording.lead.lastIndexOf(text.tokens[last]) + 1);
      const there = new Set(begin);
      telling = telling.filter(([word]) => there.has(word));
      if (unfinished) {
        const begun = matched / Math.max(sum(begin.map((word) => this.weight.get(word) ?? 0)), 1e-9);
        const told = matched / Math.max(sums[last + 1] - sums[text.starts[first]], 1e-9);
        score = Math.max(score, Math.min(rules.begun, begun * Math.min(1, told)));
      }
    }
    if (telling.length > 1) {
      const there = telling.filter(([word]) => positions.has(word));
      const told = sum(there.map(([, weight]) => weight)) / sum(telling.map(([, weight]) => weight));
      if (told < rules.telling) score *= told;
    }
    if (wording.tail.length) {
      const weight = (word) => this.weight.get(word) ?? 1;
      const there = wording.tail.filter((word) => positions.has(word));
      score += (rules.tail * sum(there.map(weight))) / sum(wording.tail.map(weight));
    } else {
      score += rules.tail / 2;
    }
    const alone = (message.part === "warning" && !facts.raised) || (message.part === "prose" && !facts.headed);
    if (!alone) score *= rules.parts[message.part];
    return wording.owners.map(({ number, kind }) => {
      const entry = this.entries[number];
      let here = score + facts.evidence(entry, message, values);
      // A few words of a message about the compiler are not about the compiler if nothing in the text is.
      const ground = share < rules.whole ? this.rules.grounds[entry.group] : undefined;
      if (ground && !facts.holds(ground, message, values)) here -= rules.lacking;
      if (message.kind && kind.endsWith("Warning") !== (message.part === "warning")) here -= rules.against;
      else if (message.kind && kind !== message.kind) here -= rules[matched >= rules.light ? "other_kind" : "other_kind_light"];
      const held = (entry.favors ?? []).filter((each) => facts.holds(each, message, values));
      const own = Boolean(entry.proven) || !(wording.plainly || entry.common);
      const certain = own || near || held.some((each) => !each.startsWith("text: "));
      const proven = own || about || held.length > 0;
      return { entry: number, wording, message, score: here, share, weight: matched, values, proven, certain };
    });
  }
}

class Facts {
  constructor(paste, matcher) {
    const { rules } = matcher;
    this.rules = rules;
    this.nodes = matcher.nodes;
    this.formulas = matcher.formulas;
    this.lacking = matcher.lacking;
    this.text = paste.text;
    this.printed = paste.printed;
    this.frames = paste.frames.map(shownFrame).join("\n");
    this.place = ownPlace(paste, rules);
    this.raiser = outerPlace(paste, rules);
    this.end = paste.frames.length ? shownFrame(paste.frames.at(-1)) : "";
    const said = (...parts) => paste.messages.filter(({ part }) => parts.includes(part)).map(shownMessage).join("\n");
    this.raised = said("last", "earlier", "cause");
    this.told = said("prose");
    const advice = compiled(rules.tried.advice, "g");
    this.tried = this.text.replace(advice, () => " ");
    this.own = [...ownCode(paste, rules), ...paste.messages.map(shownMessage)].join("\n").replace(advice, () => " ");
    this.asks = compiled(rules.topics.asks).test(this.told.toLowerCase());
    const beginning = [...(this.told || this.text)].slice(0, SAID).join("");
    this.concepts = new Set(concepts(beginning, rules.concepts));
    // The details are no topics: only conditions and ways ask for them.
    this.details = new Set([...this.concepts, ...concepts(beginning, rules.details)]);
    this.about = [...this.details].sort().join(" ");
    this.words = ` ${plain([...this.text].slice(0, TOLD_WORDS).join("")).trim().split(/ +/).join(" ")} `;
    this.headed = paste.messages.some((message) => message.kind);
    this.known = new Map();
  }

  holds(condition, message, values) {
    if (this.known.has(condition)) return this.known.get(condition);
    const colon = condition.indexOf(": ");
    const negated = condition.startsWith("not ");
    const where = condition.slice(negated ? 4 : 0, colon);
    const held = compiled(condition.slice(colon + 2)).test(this.fact(where, message, values)) !== negated;
    if (AROUND.test(condition)) this.known.set(condition, held);
    return held;
  }

  tells(way) {
    if (this.raised.trim() || this.asks) return false;
    return way.split(" & ").every((part) => {
      const names = part.replace(/^!/, "").split("|");
      return names.some((name) => this.details.has(name)) === (part[0] !== "!");
    });
  }

  // How many clues there are besides those that are enough, or -1.
  spared(clues) {
    if (this.raised.trim()) return -1;
    const colon = clues.indexOf(":");
    let found = 0;
    for (const clue of clues.slice(colon + 1).split(";")) {
      const kind = "+!".includes(clue[0]) ? clue[0] : "";
      const there = clue.slice(kind.length).split("|").some((words) => this.mentions(words));
      if (kind === "+" && !there) return -1;
      found += there * ({ "+": 0, "!": -2 }[kind] ?? 1);
    }
    return found - Number(clues.slice(0, colon));
  }

  mentions(words) {
    if (words[0] !== "@") return this.words.includes(words);
    return this.rules.clues[words.slice(1)].split("|").some((word) => this.words.includes(word));
  }

  fact(where, message, values) {
    if (where === "text") return this.text;
    if (where === "frames") return this.frames;
    if (where === "end") return this.end;
    if (where === "place") return this.place ? shownFrame(this.place) : "";
    if (where === "raiser") return this.raiser ? shownFrame(this.raiser) : "";
    if (where === "message") return shownMessage(message);
    if (where === "said") return [...shownMessage(message).split("\n\n")[0].slice(0, 2 * SAID)].slice(0, SAID).join("");
    if (["printed", "own", "raised", "told", "tried", "about"].includes(where)) return this[where];
    if (where === "shapes") return related(...(values.shape ?? []).slice(0, 2));
    if (where === "node") return (values.node ?? []).map((node) => `${this.origin(node)} ${node}`).join(" ");
    if (where === "formula") return this.differentiated(shownMessage(message)).join(" ");
    return (values[where] ?? []).join(" ");
  }

  differentiated(message) {
    const names = [...message.matchAll(compiled(this.rules.formulas.named, "g"))].map(({ groups }) => [groups.name.split(".")[0], groups.input]);
    const lacks = (name, input) => this.lacking.has(name) || this.lacking.has(name + input);
    const known = names.filter(([name, input]) => lacks(name, input) || this.formulas.has(squashed(name)));
    return known.map(([name, input]) => `${lacks(name, input) ? "lacks" : "has"} ${name}`);
  }

  origin(node) {
    const at = node.indexOf("Backward") || node.lastIndexOf("Backward");
    const name = at < 0 ? node : node.slice(0, at);
    if (!this.nodes.has(name)) return this.rules.functions.names.includes(name) ? "own" : "custom";
    return at >= 0 && node.slice(at + 8) ? "builtin" : "unclear";
  }

  case(entry, message, values) {
    return (entry.cases ?? []).findIndex(({ when }) => when.every((sign) => this.holds(sign, message, values)));
  }

  evidence(entry, message, values, needed = true) {
    const rules = this.rules.score;
    const held = (name) => (entry[name] ?? []).filter((each) => this.holds(each, message, values));
    const absent = (entry.needs ?? []).filter((each) => needed && !this.holds(each, message, values));
    const missing = sum(absent.map((each) => rules[AROUND.test(each) ? "lacking" : "unlike"]));
    const shown = this.case(entry, message, values) >= 0 ? rules.hint : 0;
    const favors = shown + sum(held("favors").map((each) => rules[each.startsWith("text: ") ? "hint" : "favor"]));
    const against = sum(held("against").map((each) => rules[/^not (?:text|printed): /.test(each) ? "absent" : "against"]));
    return (entry.prior ?? 0) + Math.min(favors, 2 * rules.favor) - against - missing;
  }
}

const shownFrame = (frame) => `${frame.file}:${frame.line} in ${frame.function}: ${frame.code}`;

const shownMessage = ({ kind, text }) => (kind ? `${kind}: ${text}` : text);

// One form for the names of nodes and operators.
const squashed = (name) => name.replaceAll("_", "").toLowerCase();

// How one shape became the other.
const related = (got = "", expected = "") => {
  if (/[jsu]\d/.test(got + expected)) return ""; // sizes that are no numbers
  const [a, b] = [got, expected].map((shape) => [...shape.matchAll(/\d+/g)].map(([size]) => Number(size)));
  const [last, other] = [a.toReversed(), b.toReversed()];
  const sorted = (sizes) => String([...sizes].sort((x, y) => x - y));
  const product = (sizes) => sizes.reduce((x, y) => x * y, 1);
  if (!a.length || !b.length || String(a) === String(b) || a.includes(0)) return "";
  if (sorted(a) === sorted(b)) return "reordered";
  if (product(a) === product(b)) return "regrouped";
  if (a.length <= b.length && last.every((size, i) => size === 1 || size === other[i])) return "reduced";
  return a.length > 1 && String(a.slice(1)) === String(b.slice(1)) ? "rows" : "";
};

const ownPlace = (paste, rules) =>
  paste.frames.findLast((frame) => frame.file && !compiled(rules.paste.library).test(frame.file)) ?? null;

const ownCode = (paste, rules) =>
  paste.frames
    .filter((frame) => frame.file && !compiled(rules.paste.library).test(frame.file))
    .map((frame) => `${shownFrame(frame)}\n${frame.around}`);

const outerPlace = (paste, rules) =>
  paste.frames.findLast((frame) => frame.file && !compiled(rules.paste.torch).test(frame.file)) ?? null;

const tokenized = (text, rules, drop) => {
  rules.same.forEach(([pattern, instead]) => (text = text.replace(compiled(pattern, "g"), () => instead)));
  const breaks = [...text.matchAll(compiled(rules.sentence, "g"))].map((match) => match.index);
  const tokens = [];
  const values = [];
  const bounds = [];
  let position = 0;
  for (const match of text.matchAll(compiled(rules.pattern, "g"))) {
    while (position < breaks.length && breaks[position] < match.index) {
      position += 1;
      bounds.push(tokens.length);
    }
    const kind = rules.kinds[match.slice(1).findLastIndex((group) => group !== undefined)];
    if (!kind) continue;
    const token = kind === "word" ? match[0].toLowerCase() : kind;
    if (drop.has(token)) continue;
    tokens.push(token);
    values.push(match[0]);
    if (tokens.length === TOKENS) break;
  }
  const starts = [];
  const ends = [];
  const edges = [...new Set([0, ...bounds]), tokens.length];
  edges.slice(1).forEach((end, n) => {
    for (let j = edges[n]; j < end; j += 1) {
      starts.push(edges[n]);
      ends.push(end);
    }
  });
  return { tokens, values, starts, ends };
};

const chain = (lead, positions, sums, weight, rules) => {
  const pairs = lead.flatMap((word, i) => (weight.has(word) ? (positions.get(word) ?? []).map((j) => [i, j]) : []));
  const before = [0];
  lead.forEach((word) => before.push(before.at(-1) + (word[0] === "<" ? 0 : (weight.get(word) ?? 0))));
  const best = [];
  let [top, first, last] = [0, 0, 0];
  pairs.forEach(([i, j], n) => {
    let [score, begin] = [0, j];
    for (let m = 0; m < n; m += 1) {
      const [row, at] = pairs[m];
      const skipped = j - at - 1;
      if (row >= i || skipped < 0 || skipped > rules.reach) continue;
      let worth = best[m][0];
      if (skipped) {
        worth -= rules.gap * Math.max(0, sums[j] - sums[at + 1] - rules.name * (i - row - 1));
        worth -= rules.swap * (before[i] - before[row + 1]);
      }
      if (worth > score) [score, begin] = [worth, best[m][1]];
    }
    score += weight.get(lead[i]);
    best.push([score, begin]);
    if (score > top) [top, first, last] = [score, begin, j];
  });
  return { matched: top, first, last };
};

const captured = (text, first, last) => {
  const found = {};
  for (let j = text.starts[first]; j < text.ends[last]; j += 1) {
    if (text.tokens[j][0] === "<") (found[text.tokens[j].slice(1, -1)] ??= []).push(text.values[j]);
  }
  return found;
};

// --- answering.py ---

const answer = (matcher, text) => {
  const paste = split(text, matcher.rules.paste);
  const facts = new Facts(paste, matcher);
  const found = judged(matcher, paste, facts);
  const inCase = (match) => ({ ...match, case: facts.case(matcher.answers[match.entry], match.message, match.values) });
  return { ...found, matches: found.matches.map(inCase) };
};

const judged = (matcher, paste, facts) => {
  const ranked = matcher.rank(paste, facts);
  const last = raised(paste, matcher.rules);
  const message = last ?? quoted(paste, matcher.rules) ?? warned(paste);
  let general = inGeneral(paste, facts, message, matcher, false);
  const rules = matcher.rules.score;
  const about = facts.holds(rules.proof, message ?? NOTHING, {});
  const enough = (match) => match.score >= rules[about || match.weight >= rules.heavy ? "about" : "maybe"];
  let likely = ranked.filter((match) => enough(match) && !slight(match, rules));
  const { outside, foreign } = scope(facts, last, matcher.rules, likely.length > 0 && likely[0].wording === null);
  let sure = likely.length > 0 && likely[0].score >= rules.yes;
  if (outside && (foreign || !(sure && (!last || ["last", "cause"].includes(likely[0].message.part))))) {
    return { known: "no", matches: [], general: outside, message, note: "" };
  }
  if (!likely.length || (!likely[0].proven && paste.frames.length)) return byWords(matcher, paste, facts, message, ranked, general);
  if (!last && likely[0].message.part === "prose") {
    const fitting = likely.filter((match) => fits(matcher, match, paste, message));
    if (!fitting.length) return byWords(matcher, paste, facts, message, ranked, general, likely);
    likely = fitting;
  }
  likely = distinct(matcher, facts, likely);
  const best = likely[0];
  general = inGeneral(paste, facts, message, matcher, true);
  const rivals = likely.filter((m) => m === best || rival(best, m, rules));
  const aside = ["warning", "prose", "earlier"].includes(best.message.part) && last && best.message !== last;
  if (aside && best.message.part === "warning") {
    sure = false;
    if (!matcher.entries[best.entry].announces) return byWords(matcher, paste, facts, message, ranked, general);
  }
  if (best.message.part === "prose" && (aside || (best.weight < rules.quoted && best.score < rules.exact))) sure = false;
  let { note, settled } = owner(facts, best, matcher);
  if (aside && last.place && best.message.part === "earlier" && !paste.chained) {
    note = `${matcher.rules.general.later} ${heading(last)}`;
    settled = false;
  }
  if (sure && rivals.length === 1 && best.certain && settled) {
    return { known: undecided(facts, best, matcher) ? "maybe" : "yes", matches: [best], general, message: best.message, note };
  }
  let near = likely.filter((match) => match.score > best.score - rules[same(best, match) ? "cause" : "near"]);
  if (best.wording === null && !inWords(matcher, best)) near = near.filter((match) => !inWords(matcher, match));
  if (!sure && best.message.part === "prose" && !last) {
    const { found, ahead } = topicsOf(matcher, paste, facts, message, ranked);
    if (ahead && near.every((match) => match.entry !== found[0].entry)) {
      const entry = found[0].entry < matcher.entries.length; // and not a question
      const first = best.wording !== null && entry && found[0].share >= matcher.rules.topics.most_of_it;
      near.splice(first ? 0 : 1, 0, found[0]);
    }
    if (inWords(matcher, best)) {
      const there = new Set(near.map((match) => match.entry));
      near.push(...found.filter((each) => !there.has(each.entry) && each.share >= matcher.rules.topics.more));
    }
  }
  return { known: "maybe", matches: near.slice(0, MOST_ENTRIES), general, message: best.message, note };
};

// Without those whose case has the title of a case before: entries can share their cases.
const distinct = (matcher, facts, matches) => {
  const titles = new Set();
  return matches.filter((match) => {
    const entry = matcher.answers[match.entry];
    const shown = facts.case(entry, match.message, match.values);
    const title = (shown >= 0 && entry.cases[shown].title) || entry.title;
    return !titles.has(title) && titles.add(title);
  });
};

const byWords = (matcher, paste, facts, message, ranked, general, doubted = []) => {
  const { found, ahead } = topicsOf(matcher, paste, facts, message, ranked);
  const unlike = (matches) => matches.filter((match, i) => matches.findIndex(({ entry }) => entry === match.entry) === i);
  if (doubted.length) {
    if (ahead && found[0].share >= matcher.rules.topics.most_of_it) {
      return { known: "maybe", matches: unlike([found[0], doubted[0]]), general, message, note: "" };
    }
    const told = unlike([doubted[0], ...found].filter((match) => inWords(matcher, match)));
    return { known: "no", matches: told.slice(0, MOST_ENTRIES), general, message, note: "" };
  }
  if (ahead) return { known: "maybe", matches: found, general, message, note: matcher.rules.general.worded };
  const nearest = ranked.slice(0, MOST_ENTRIES).filter((match) => isNear(match, matcher.rules.score));
  return { known: "no", matches: nearest.length ? nearest : found, general, message, note: "" };
};

// Whether a symptom is what a text is about, judged by all of its words.
const fits = (matcher, match, paste, message) => {
  const rules = matcher.rules.topics;
  const clues = match.wording === null && match.weight > 0;
  if (clues || match.score >= matcher.rules.score.yes) return true;
  const searched = matcher.topics.words(paste, message);
  if (searched.length < rules.fair) return true;
  const at = matcher.topics.rank(searched).order.indexOf(match.entry);
  return rules.fit.some(([score, behind]) => match.score >= score && at < behind);
};

const topicsOf = (matcher, paste, facts, message, ranked) => {
  const rules = matcher.rules.topics;
  const told = (message ?? NOTHING).part === "prose";
  if (told && facts.asks) return { found: [], ahead: false };
  const short = told && facts.concepts.size >= rules.alike;
  const searched = matcher.topics.words(paste, message);
  if (searched.length < rules[short ? "short" : "long"]) return { found: [], ahead: false };
  const refused = new Set(ranked.filter((match) => match.share >= matcher.rules.score.whole).map((match) => match.entry));
  const topics = matcher.topics
    .rank(searched)
    .found.filter(({ entry }) => !refused.has(entry) && hasNeeds(facts, matcher.answers[entry]));
  const said = { wording: null, message: message ?? NOTHING, weight: 0, values: {}, proven: true, certain: false };
  const found = topics
    .filter((topic) => topic.share >= rules.near && topic.telling >= rules.few)
    .map((topic) => ({ ...topic, ...said }));
  const [first, second] = topics;
  const enough = Boolean(first) && first.share >= rules[told ? "share" : "raised"] && first.telling >= rules.enough;
  const ahead = rules[told ? "ahead" : "raised_ahead"];
  const aheadOfAll = enough && (!second || first.score >= ahead * second.score);
  const alike = Boolean(first) && first.concepts >= rules.alike && first.share >= rules.alike_share;
  return { found, ahead: aheadOfAll || (told && found.length > 0 && alike) };
};

const NOTHING = { kind: "", text: "", part: "prose" };

const hasNeeds = (facts, { wordings, needs = [] }) =>
  wordings.length > 0 || needs.every((need) => facts.holds(need, NOTHING, {}));

const quoted = (paste, rules) => {
  const [says, source] = [rules.paste.says, rules.paste.source].map((pattern) => compiled(pattern));
  const written = paste.messages.filter(({ part }) => part === "prose");
  const lines = written.flatMap(({ text }) => text.split("\n").map((line) => line.trim()));
  let found = lines.find((line) => says.test(line) && !source.test(line));
  if (!found && new Set(lines).size === 1 && !paste.frames.length && !source.test(lines[0])) found = lines[0];
  return found ? { kind: "", text: found, part: "prose" } : null;
};

const warned = (paste) => paste.messages.find(({ part }) => part === "warning") ?? null;

const heading = (message) => [...shownMessage(message).split("\n")[0]].slice(0, LINE).join("");

const undecided = (facts, best, matcher) => {
  const entry = matcher.entries[best.entry];
  if (facts.case(entry, best.message, best.values) >= 0) return false;
  const holds = (signs) => signs.some((sign) => facts.holds(sign, best.message, best.values));
  const { shown_by: shown = [], favors = [], needs = [] } = entry;
  if (entry.shown_by && !holds(shown)) return true;
  const open = ({ when }) => !facts.frames || !when.every((sign) => sign.startsWith("frames: "));
  const causes = entry.cases?.some((each) => each.asked && each.title && open(each));
  return Boolean(causes) && !holds([...shown, ...favors, ...needs].filter((sign) => !sign.startsWith("not ")));
};

const owner = (facts, best, matcher) => {
  const entry = matcher.entries[best.entry];
  if (facts.case(entry, best.message, best.values) >= 0) return { note: "", settled: true };
  const holds = (signs) => signs.some((sign) => facts.holds(sign, best.message, best.values));
  const found = matcher.rules.owners.find(
    (each) => each.groups.includes(entry.group) && holds(each.when) && !holds(each.unless ?? []),
  );
  if (found) return { note: found.says, settled: Boolean(found.settled) };
  if (entry.borrowed && !holds(matcher.rules.general.own)) return { note: entry.borrowed, settled: true };
  return { note: "", settled: true };
};

const isNear = (match, rules) =>
  match.share >= rules.whole
    ? match.score >= rules.alike
    : match.score >= rules.nearest && match.proven && !slight(match, rules);

const inWords = (matcher, match) => match.wording === null && !matcher.answers[match.entry].wordings.length;

const slight = (match, rules) =>
  match.message.part === "prose" && match.wording !== null && match.weight < rules.slight && match.score < rules.yes;

const rival = (best, other, rules) =>
  other.score > best.score - rules[same(best, other) ? "same" : "margin"] && !covers(best, other);

const same = (best, other) => best.wording === other.wording && best.message === other.message;

const covers = (best, other) =>
  best.message === other.message && best.weight > other.weight + 2 && best.share > other.share - 0.01;

const raised = (paste, rules) => {
  const wrapper = compiled(rules.paste.wrappers);
  const found = paste.messages.filter((message) => ["last", "earlier", "cause"].includes(message.part));
  const own = found.filter((message) => !wrapper.test(message.kind) && !wrapper.test(message.text));
  return (own.length ? own : found)[0] ?? null;
};

const scope = (facts, message, rules, told) => {
  const said = message ?? { kind: "", text: facts.told, part: "prose" };
  const backward = rules.backward.signs.some((sign) => facts.holds(sign, said, {}));
  const found = rules.outside.find((each) => {
    const torch = each.unless && facts.holds(`text: ${each.unless}`, said, {});
    const excused = torch || (backward && each.forward) || (told && each.told);
    const around = (each.when ?? []).every((sign) => facts.holds(sign, said, {}));
    return around && facts.holds(`${each.unless || each.anywhere ? "text" : "message"}: ${each.find}`, said, {}) && !excused;
  });
  return { outside: found ? found.says : "", foreign: Boolean(found?.unless || found?.surely) };
};

// If an entry covers the text, the advice does not say that the index lacks it.
const inGeneral = (paste, facts, message, matcher, covered) => {
  const rules = matcher.rules.general;
  const whole = { kind: "", text: facts.text, part: "prose" };
  const values = matcher.values(message ?? NOTHING);
  const first = (table, text) =>
    matcher.rules[table].find((each) => each.when.some((sign) => facts.holds(sign, text, values)));
  const kind = first("kinds", message ?? NOTHING);
  let layer = first("layers", message ?? whole);
  const parts = [];
  if (kind && (kind.alone || layer?.unclear)) layer = undefined;
  if (!message) {
    parts.push(rules[paste.frames.length || compiled(rules.places).test(facts.text) ? "cut" : "untold"], kind || !layer?.unclear ? rules.until : rules.tell);
    if (layer?.unclear) layer = undefined;
  }
  if (kind) parts.push(kind.says);
  else if (layer && message && !(covered && layer.lacking)) parts.push(layer.raised);
  const named = message ? naming(values, rules) : "";
  if (named) parts.push(named);
  if (layer) parts.push(layer.first);
  return parts.join(" ");
};

const naming = (values, rules) => {
  const plain = compiled(rules.unnamed);
  const rows = rules.names.flatMap(([kind, label]) => {
    const found = [...new Set(values[kind] ?? [])].filter((each) => !plain.test(each)).slice(0, MOST_ENTRIES);
    return found.length ? [`${label} ${found.map((each) => `\`\`${each}\`\``).join(", ")}`] : [];
  });
  return rows.length ? `${rules.named} ${rows.join("; ")}.` : "";
};

// --- What the page shows ---

const field = document.getElementById("error-text");
const place = document.querySelector(".error-found");

// The index is larger than the page, and only who pastes something needs it.
let index = null;
let matcher = null;
let loading = null;
const load = () =>
  (loading ??= new Promise((resolve, reject) => {
    const src = document.documentElement.dataset.content_root + field.form.dataset.index;
    const script = element("script", [], { src });
    script.onload = () => {
      index = window.errorIndex;
      matcher = new Matcher(index);
      resolve();
    };
    script.onerror = () => {
      loading = null; // to be tried again
      reject(new Error(`${src} was not loaded`));
    };
    document.head.append(script);
  }));
const explain = async (text) => {
  await load();
  return answer(matcher, text);
};
window.explainError = explain; // for the test

const VERDICTS = {
  yes: () => "This is it:",
  maybe: (count) => (count > 1 ? "Several causes are possible. Which is yours?" : "Probably this:"),
  no: () => "This message is not in the index.",
  unsure: () => "No entry of the index is a sure answer to this text.",
};
const OTHERS = 4; // other causes that the reader is asked about
const NAMED = { node: "the node", op: "the operator", type: "the type", shape: "the shape", device: "the device" };

const element = (name, children = [], attributes = {}) => {
  const made = Object.assign(document.createElement(name), attributes);
  made.append(...[children].flat());
  return made;
};
// ``code`` and the reader's own names in the place of {node}.
const marked = (text, values) =>
  text
    .replace(/\{(node|op|type|shape|device)\}/g, (_, name) => values[name]?.[0] ?? NAMED[name])
    .split(/``?/)
    .map((part, i) => (i % 2 ? element("code", part) : part));

const told = ({ entry }) => Boolean(matcher.answers[entry].tell) && !matcher.answers[entry].wordings.length;
const explained = ({ entry, values, case: shown }, full, several, doubted) => {
  const { cases = [] } = matcher.answers[entry];
  const { title, url, tell, harmless, change, cause, more } = { ...matcher.answers[entry], ...cases[shown] };
  const item = element("li", element("a", marked(title, {}), { href: url }));
  const paragraph = (label, text) =>
    text && item.append(element("p", [element("strong", `${label} `), ...marked(text, values)]));
  if (!full) {
    if (told({ entry })) {
      paragraph("Only if:", tell);
      paragraph("Then:", change);
    }
    return item;
  }
  if (several) paragraph("How to tell:", tell);
  paragraph("Change:", change);
  paragraph("Ignore it:", harmless);
  if (doubted) paragraph("How to tell:", tell);
  paragraph("Why:", cause);
  paragraph("More:", more);
  const others = cases[shown] ? [] : cases.filter((each) => each.asked).slice(0, OTHERS);
  if (others.length) paragraph("Or is it this?", " ");
  item.append(...others.map((each) => element("p", marked(`${each.tell} ${each.change}`, values), { className: "error-other" })));
  return item;
};

const clear = () => {
  place.replaceChildren();
  delete place.dataset.known;
};

const show = async (event) => {
  clear();
  const text = field.value;
  if (!/[A-Za-z]{2}|[\u0400-\u04ff\u3040-\u9fff\uac00-\ud7af]{2}/.test(text)) return;
  let found;
  try {
    found = await explain(text);
  } catch (error) {
    console.error(error);
  }
  if (text !== field.value) return; // meanwhile, more was typed, and that is being explained
  clear();
  if (!found) {
    place.append(element("p", "The index of messages did not load. Reload this page, or look for yours in the list below."));
    return;
  }
  const { known, matches, general, message, note } = found;
  place.dataset.known = known;
  const worded = note && note === index.rules.general.worded;
  const unsure = known === "no" && matches.length && matches.every(told);
  const verdict = unsure ? "unsure" : known;
  place.append(element("p", worded ? "Probably one of these:" : VERDICTS[verdict](matches.length), { className: "error-verdict" }));
  if (known === "no") {
    place.append(element("p", marked(general, {})));
    if (matches.length) place.append(element("p", "The closest entries, which may be about something else:"));
  }
  if (note) place.append(element("p", marked(note, matches[0].values)));
  const alone = matches.length === 1;
  const doubted = alone && known === "maybe" && !note;
  const list = matches.map((match) => explained(match, known !== "no", !alone, doubted));
  if (list.length) place.append(element("ol", list));
  if (doubted && matcher.answers[matches[0].entry].tell && general) place.append(element("p", [element("strong", "Otherwise: "), ...marked(general, {})]));
  if (known !== "yes") {
    const said = message ? shownMessage(message) : "";
    const title = encodeURIComponent(said.split("\n")[0].slice(0, 120));
    const href = `${index.issues}?template=unknown-message.yml&title=${title}&message=${encodeURIComponent(said)}`;
    place.append(element("p", element("a", "Not what you are looking for? Report this message.", { href })));
  }
  // Who has pasted something waits for the answer; who types goes on typing.
  if (event.pasted || event.inputType === "insertFromPaste") place.scrollIntoView();
};

// The landing page hands over what was pasted there, in the part of the address that is sent to no server.
const handed = () => {
  if (!location.hash.startsWith("#paste=")) return false;
  try {
    field.value = decodeURIComponent(location.hash.slice("#paste=".length));
  } catch {
    return false; // not an address that the landing page wrote
  }
  history.replaceState(null, "", location.pathname + location.search);
  return true;
};

field.form.addEventListener("submit", (event) => event.preventDefault());
field.addEventListener("focus", () => load().catch(console.error));
field.addEventListener("input", show);
show({ pasted: handed() }); // or a browser has kept the text
