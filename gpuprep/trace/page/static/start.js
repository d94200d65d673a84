// Unpacks the profile, then shows what the address asks for.

const packed = id => document.getElementById(id).textContent.trim();

const json = async text => {
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
};

// The first profile of the page, or one of the others.
page.part = async number => {
  const ending = number ? `-${number}` : "";
  const [document, data] = await Promise.all([json(packed(`document${ending}`)), page.unpack(packed(`profile${ending}`))]);
  return { document, data };
};

// Says that the content is on its way, until the newest of such works has ended.
let works = 0;
const busy = async work => {
  const content = document.getElementById("content"), mine = ++works;
  content.setAttribute("aria-busy", "true");
  try { await work(); } finally { if (mine === works) content.removeAttribute("aria-busy"); }
};

const start = async () => {
  const opening = document.getElementById("opening"), state = page.state;
  opening.hidden = false;
  addEventListener("hashchange", async () => {
    const before = state.view, id = document.activeElement?.id;
    await busy(page.route);
    if (id) document.getElementById(id)?.focus(); // what had it was drawn again
    if (state.view !== before) { scrollTo(0, 0); document.getElementById("content").focus({ preventScroll: true }); }
  });
  try {
    await busy(async () => {
      if (document.getElementById("job")) Object.assign(page.job, await json(packed("job")));
      await page.route();
    });
  } catch (error) {
    if (!state.data) opening.textContent = `This page could not unpack its profile: ${error.message}. It needs a current browser ` +
      "(Chrome 80, Firefox 113, Safari 16.4 or later).";
    throw error;
  }
};

window.tracePage = page; // for whoever looks at the page with the browser's tools, and for tests
start();
