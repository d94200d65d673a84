// The page of a job has the profiles of several ranks: the address tells which one all views show (rank=3). What the
// ranks show together is the view Ranks.

const { el } = page;

// carried: of each rank {rank, part, run}: the number of its profile in this page, null where there was no room; the name
// of its own page, where a server sent this one. one_of: of a page of one profile, {job, profiles}: the page of its job.
page.job = { ranks: null, carried: [], one_of: null };

const first = () => page.job.carried.find(one => one.part === 0);
const carriedAs = rank => page.job.carried.find(one => one.rank === rank);

// The rank that an address asks for; the first one of the page where it asks for none that is here.
page.rankOf = params => {
  if (!page.job.carried.length) return undefined;
  const text = params.get("rank") || "", asked = /^\d{1,15}$/.test(text) ? carriedAs(Number(text)) : null;
  return (asked && asked.part !== null ? asked : first()).rank;
};
page.profileOf = rank => page.part(rank === undefined ? 0 : carriedAs(rank).part);

// A server's name for the profile that is shown; null in a file.
page.runShown = ({ protocol, pathname, search } = location) => {
  if (!/^https?:$/.test(protocol) || !/\/page$/.test(pathname)) return null;
  return page.state.rank === undefined ? new URLSearchParams(search).get("run") : carriedAs(page.state.rank).run;
};

const SERVE = "`gpuprep trace serve` with the folder of the ranks shows it.";
const ownPage = run => `page?run=${encodeURIComponent(run)}`;
// Rows of one rank's ops mean nothing in another: the view and the iterations stay.
page.showRank = rank => {
  const { part, run } = carriedAs(rank), { view, choice } = page.state;
  if (part === null) {
    if (run) location.href = ownPage(run);
    else page.details(`Rank ${rank}`, el("p", {}, "There was no room for its profile in this page. ", SERVE));
    return;
  }
  const range = choice.start === undefined ? "" : `&iterations=${choice.start}-${choice.stop}`;
  location.hash = `#/${view}?rank=${rank}${range}`;
};

const words = ({ rank, part, run }) => {
  const late = page.job.ranks.stragglers.some(one => one.rank === rank) ? ", straggler" : "";
  return `Rank ${rank}${late}${part !== null ? "" : run ? " (a page of its own)" : " (not in this page)"}`;
};
page.rankChoice = state => {
  if (page.job.carried.length < 2) return null;
  const lines = new Map(page.job.ranks.ranks.map(one => [one.rank, one]));
  return el("label", { class: "choose", title: "The rank whose profile all views but Ranks show" }, el("span", {}, "Rank"), el("select", {
    id: "rank", onchange: event => page.showRank(Number(event.target.value)),
  }, page.job.carried.map(one => el("option", {
    value: one.rank, selected: one.rank === state.rank, title: lines.get(one.rank).file, disabled: one.part === null && !one.run,
  }, words(one)))));
};

// From the page of one rank to what all ranks show together, where a server has both.
page.linkToJob = state => {
  const { one_of } = page.job, { rank } = state.document.file;
  if (!one_of || page.runShown() === null) return null;
  const asked = rank === null ? "" : `?rank=${rank}`;
  return el("a", { href: `page?job=${encodeURIComponent(one_of.job)}#/ranks${asked}`,
    title: "These profiles beside each other, as the ranks of one job" }, `Ranks (${one_of.profiles} profiles)`);
};
page.ranksLeftOut = () => page.job.carried.filter(one => one.part === null);

// What to do where single kernels have no room in the page.
page.whereKernelsAre = state => {
  const run = page.runShown();
  if (!state.data.header.served) return "No page has room for so many. All sums are complete; record fewer steps to see each kernel.";
  if (run === null) return ["`gpuprep trace serve` shows them."];
  return [el("a", { href: ownPage(run) }, "The page of this profile alone"), " has room for them."];
};
