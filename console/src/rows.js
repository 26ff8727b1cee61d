// rows.js - a long list of which only the visible rows are in the document. Rows come page by page
// while one scrolls; the pages that are seen are read again, and nothing jumps.
import { fill, h } from "./dom.js";

const ROW = 36, AHEAD = 10;

/**
 * @template T
 * @param {{label: string, heads: string[], cells: (row: T) => (Node | string)[], href: (row: T) => string,
 *   load: (after: string | null) => Promise<{rows: T[], next: string | null}>, empty: string}} list
 */
export function longList(list) {
  /** @type {{after: string | null, rows: T[], next: string | null}[]} */
  let pages = [];
  let busy = false, generation = 0;
  const body = h("div", { class: "rows", role: "rowgroup" });
  const state = h("p", { class: "quiet", role: "status" });
  const head = h("div", { class: "head", role: "row" }, list.heads.map((t) => h("span", { role: "columnheader" }, t)));
  const scroller = h("div", { class: "list", role: "table", "aria-label": list.label, tabindex: 0, onscroll: () => { draw(); void more(); } }, head, body);
  const element = h("div", {}, scroller, state);
  const count = () => pages.reduce((n, p) => n + p.rows.length, 0);
  /** @param {number} from @param {number} to @returns {T[]} */
  const slice = (from, to) => {
    /** @type {T[]} */
    const rows = [];
    let at = 0;
    for (const p of pages) {
      if (at < to && at + p.rows.length > from) rows.push(...p.rows.slice(Math.max(0, from - at), to - at));
      at += p.rows.length;
    }
    return rows;
  };
  const window_ = () => [Math.floor(scroller.scrollTop / ROW), Math.ceil((scroller.scrollTop + scroller.clientHeight) / ROW)];

  function draw() {
    const n = count();
    const [first, last] = window_();
    const from = Math.max(0, first - AHEAD), to = Math.min(n, last + AHEAD);
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.row : undefined;
    body.style.height = `${n * ROW}px`;
    scroller.setAttribute("aria-rowcount", String(pages.at(-1)?.next ? -1 : n + 1));
    fill(body, slice(from, to).map((row, i) => {
      const a = h("a", { class: "line", role: "row", href: list.href(row), "aria-rowindex": from + i + 2, "data-row": from + i },
        list.cells(row).map((cell) => h("span", { role: "cell" }, cell)));
      a.style.top = `${(from + i) * ROW}px`;
      return a;
    }));
    if (focused !== undefined) /** @type {HTMLElement | null} */ (body.querySelector(`[data-row="${CSS.escape(focused)}"]`))?.focus({ preventScroll: true });
    fill(state, n === 0 ? list.empty : `${n.toLocaleString()} shown${pages.at(-1)?.next ? ", more below" : ""}`);
  }

  /** What is missing below. */
  async function more() {
    const last = pages.at(-1);
    if (busy || !last?.next || window_()[1] < count() - 50) return;
    busy = true;
    const mine = generation;
    try {
      const page = await list.load(last.next);
      if (mine === generation) pages.push({ after: last.next, ...page });
    } finally {
      busy = false;
    }
    draw();
  }

  return {
    element,
    /** Everything anew: another filter. */
    async reset() {
      const mine = ++generation;
      const first = await list.load(null);
      if (mine !== generation) return;
      pages = [{ after: null, ...first }];
      scroller.scrollTop = 0;
      draw();
    },
    /** The pages that are seen, as they are now. */
    async refresh() {
      if (busy || pages.length === 0) return;
      const mine = generation;
      const [first, last] = window_();
      for (let i = 0, at = 0; i < pages.length; i++) {
        const end = at + pages[i].rows.length;
        if (at <= last && end >= first) {
          const page = await list.load(pages[i].after);
          if (mine !== generation) return;
          const moved = page.next !== pages[i].next;
          pages[i] = { after: pages[i].after, ...page };
          if (moved) pages.length = i + 1; // what follows begins elsewhere, and is read when it is seen
        }
        at = end;
      }
      draw();
      await more();
    },
  };
}
