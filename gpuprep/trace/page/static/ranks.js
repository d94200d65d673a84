// Several ranks of one job: who waits for whom. Only where the page was made of a folder with a profile of each rank.

const { el, figure, percent, time, textColumn, shortColumn, countColumn, timeColumn } = page;

// Long lists of ranks are cut.
const ranksInWords = ranks => (ranks.length > 12 ? `${ranks.slice(0, 12).join(", ")} and ${ranks.length - 12} more` : ranks.join(", "));

const findings = job => [
  job.slowdown.words,
  job.steps.length || job.ranks.length < 2 ? null : "No step is in all of these profiles: they are hardly of one job.",
  ...job.stragglers.map(one => one.words),
  job.steps.length && !job.stragglers.length && job.ranks.some(one => one.late_us !== null)
    ? "No straggler: no rank is last in most steps by 5 % of a step." : null,
  job.missing.length ? `No profile of rank ${ranksInWords(job.missing)}: it is not known what they wait for.` : null,
  page.ranksLeftOut().length ? `No room in this page for the profile of rank ${ranksInWords(page.ranksLeftOut().map(one => one.rank))}. ` +
    (page.runShown() === null ? "`gpuprep trace serve` with the folder shows each." : "Each has a page of its own, which the list of ranks leads to.") : null,
  `Clocks: ${job.clocks}${job.clock_error_us === null ? "" : ` (ends of one collective lie ${time(job.clock_error_us)} apart)`}.`,
].filter(Boolean);

const chart = job => {
  const rows = job.ranks.filter(one => one.step_us !== null && one.compute_us !== null);
  if (!rows.length) return el("p", {}, "No step is in all of these profiles.");
  const parts = [["Compute", "tc"], ["Exposed collectives", "eligible"], ["Rest of the step", "idle"]];
  return page.bars("A step of each rank in ms", rows.map(one => {
    const rest = Math.max(0, one.step_us - one.compute_us - one.exposed_us);
    return {
      label: String(one.rank), values: [one.compute_us, one.exposed_us, rest].map(us => us / 1000),
      title: `Rank ${one.rank}: a step of ${time(one.step_us)}, ${time(one.compute_us)} compute, ${time(one.exposed_us)} exposed collectives`,
    };
  }), parts.map(([label, colour]) => ({ label, colour, shown: "" })));
};

page.views.ranks = {
  title: "Ranks", place: 62,
  shown: () => Boolean(page.job.ranks),
  render: (container, state) => {
    const job = page.job.ranks, { ranks, collectives } = job;
    const steps = job.steps.flatMap(step => ranks.map((one, place) => ({
      name: step.name, rank: one.rank, wall_us: step.wall_us[place], busy_us: step.busy_us[place], exposed_us: step.exposed_us[place],
      late_us: step.late_us[place], waited_for: step.last_rank === one.rank,
    })));
    container.append(
      page.panel(`${ranks.length} ${job.world_size === null ? "" : `of ${figure(job.world_size)} `}ranks`,
        el("ul", {}, findings(job).map(words => el("li", {}, words)), job.notes.map(note => el("li", { class: "soft" }, note.text)))),
      page.panel("A step of each rank, in ms", chart(job)));
    page.table(container, {
      name: "ranks", title: "Ranks", count: ranks.length, order: ["rank", "asc"], length: 25,
      lead: "Means of the steps that all ranks have. Busy, compute and collectives are unions. Exposed: collectives beside which no kernel runs on this " +
        "GPU. Late: what the others wait for this rank alone. The other views " +
        `show rank ${state.rank}; choose another one here, or beside the list of views.`,
      pick: { head: "Show", label: row => `Show rank ${ranks[row].rank}`, picked: ranks.findIndex(one => one.rank === state.rank),
        on: row => page.showRank(ranks[row].rank) },
      columns: [
        countColumn(ranks, "rank", "Rank"), timeColumn(ranks, "step_us", "Step"), timeColumn(ranks, "busy_us", "GPU busy"),
        countColumn(ranks, "busy_percent", "GPU busy", { key: "busy_percent", unit: "%", digits: 1 }), timeColumn(ranks, "compute_us", "Compute"),
        timeColumn(ranks, "collective_us", "Collectives"), timeColumn(ranks, "exposed_us", "Exposed"), timeColumn(ranks, "overlapped_us", "Overlapped"),
        timeColumn(ranks, "waiting_us", "Waiting"),
        timeColumn(ranks, "late_us", "Late", {
          show: (us, row) => page.meter(`${figure(us, 3)} (${percent(us === null ? null : 100 * us / ranks[row].step_us)})`, us / ranks[row].step_us, "eligible", "Share of the step"),
        }),
        countColumn(ranks, "last_percent", "Last", { unit: "%", digits: 1, meaning: "Of the collectives, those that this rank entered as the last one" }),
        timeColumn(ranks, "clock_offset_us", "Clock moved"), countColumn(ranks, "device", "GPU"), textColumn(ranks, "file", "File"),
      ],
    });
    page.table(container, {
      name: "collectives", title: "Collectives", count: collectives.length, order: ["total_us", "desc"], length: 25,
      lead: "One call is the mean over ranks, with waiting. Transfer is from the last rank's start to the last end; the bus bandwidth is its, as nccl-tests count.",
      columns: [
        shortColumn(collectives, "name", "Collective"), textColumn(collectives, "group", "Group"), countColumn(collectives, "group_size", "Ranks"),
        shortColumn(collectives, "dtype", "Data type"), countColumn(collectives, "bytes", "Size", { unit: "bytes" }), countColumn(collectives, "calls", "Calls a rank"),
        timeColumn(collectives, "total_us", "All calls"), timeColumn(collectives, "time_us", "One call"), timeColumn(collectives, "exposed_us", "Exposed"),
        timeColumn(collectives, "overlapped_us", "Overlapped"), timeColumn(collectives, "transfer_us", "Transfer"),
        countColumn(collectives, "bus_gb_s", "Bus bandwidth", { unit: "GB/s", digits: 2 }),
      ],
    });
    page.table(container, {
      name: "steps-by-rank", title: "Steps by rank", count: steps.length, length: 25,
      columns: [
        textColumn(steps, "name", "Step"), countColumn(steps, "rank", "Rank"), timeColumn(steps, "wall_us", "Duration"), timeColumn(steps, "busy_us", "GPU busy"),
        timeColumn(steps, "exposed_us", "Exposed"), timeColumn(steps, "late_us", "Late"), page.boolColumn(steps, "waited_for", "Waited for most"),
      ],
    });
  },
};
