'use strict'
// The page is complete without this: it finds rows, opens folds that a link points into, and marks where the reader is.
const all = (selector, of = document) => [...of.querySelectorAll(selector)]

for (const box of all('.find')) {
  const input = box.querySelector('input'), choice = box.querySelector('select'), count = box.querySelector('output')
  const list = document.getElementById(box.dataset.rows), fold = list.closest('details')
  const rows = all('[data-row]', list)
  const texts = rows.map(row => row.textContent.toLowerCase())
  const find = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean)
    const wanted = choice ? choice.value : ''
    let shown = 0
    rows.forEach((row, place) => {
      const fits = words.every(word => texts[place].includes(word)) && (!wanted || row.dataset.row === wanted)
      row.hidden = !fits
      shown += fits
    })
    const looking = words.length > 0 || wanted !== ''
    if (fold && looking) fold.open = true
    count.textContent = looking ? `${shown} of ${rows.length}` : ''
  }
  input.addEventListener('input', find)
  if (choice) choice.addEventListener('change', find)
  box.hidden = false
}

const openTo = id => {
  let one = id && document.getElementById(decodeURIComponent(id))
  if (!one) return
  for (let up = one; up; up = up.parentElement) if (up.tagName === 'DETAILS') up.open = true
  one.scrollIntoView()
}
addEventListener('hashchange', () => openTo(location.hash.slice(1)))
openTo(location.hash.slice(1))

// A word that is explained: Escape closes what pointer or focus opened (WCAG 1.4.13).
addEventListener('keydown', event => {
  if (event.key === 'Escape') all('.word').forEach(word => word.classList.add('closed'))
})
for (const word of all('.word')) {
  for (const back of ['pointerenter', 'focusin']) word.addEventListener(back, () => word.classList.remove('closed'))
}

// On a narrow page the contents are one row that scrolls: a link that is half out of sight is brought into it.
for (const link of all('.toc a')) {
  link.addEventListener('focus', () => {
    const bar = link.closest('.toc'), row = bar.getBoundingClientRect(), box = link.getBoundingClientRect()
    if (box.left < row.left) bar.scrollLeft -= row.left - box.left + 16
    else if (box.right > row.right) bar.scrollLeft += box.right - row.right + 16
  })
}

const links = new Map(all('.toc a').map(link => [link.hash.slice(1), link]))
if (links.size && 'IntersectionObserver' in window) {
  const seen = new Set()
  const watch = new IntersectionObserver(changes => {
    for (const change of changes) change.isIntersecting ? seen.add(change.target.id) : seen.delete(change.target.id)
    let done = false
    for (const [id, link] of links) {
      if (seen.has(id) && !done) link.setAttribute('aria-current', 'true')
      else link.removeAttribute('aria-current')
      done = done || seen.has(id)
    }
  }, {rootMargin: '-60px 0px -55% 0px'})
  for (const id of links.keys()) {
    const part = document.getElementById(id)
    if (part) watch.observe(part)
  }
}
