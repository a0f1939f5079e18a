// How hits of the search are ordered. Sphinx gives a page one of whose titles has one of the words as much as the section
// whose title is the query, and sorts equals by name: a section found by its whole title comes before all of these.
var Scorer = {
  score: ([docname, title, anchor, description, score, filename, kind]) => (kind === "title" ? 2 * score : score),
  // What follows is Sphinx's own.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
