// Unpacks the profile, then shows what the address asks for.

const packed = id => document.getElementById(id).textContent.trim();

const json = async text => {
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
};

const start = async () => {
  const opening = document.getElementById("opening"), state = page.state;
  opening.hidden = false;
  try {
    [state.document, state.data] = await Promise.all([json(packed("document")), page.unpack(packed("profile"))]);
  } catch (error) {
    opening.textContent = `This page could not unpack its profile: ${error.message}. It needs a current browser ` +
      "(Chrome 80, Firefox 113, Safari 16.4 or later).";
    throw error;
  }
  addEventListener("hashchange", () => {
    const before = state.view;
    page.route();
    if (state.view !== before) { scrollTo(0, 0); document.getElementById("content").focus({ preventScroll: true }); }
  });
  page.route();
};

window.tracePage = page; // for whoever looks at the page with the browser's tools, and for tests
start();
