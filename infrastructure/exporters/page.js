"use strict";
// Makes the page easier to use. It reads the page and folds, hides and marks what is there; it writes no text
// of a message anywhere, keeps nothing and asks nobody.
(() => {
  const root = document.documentElement;
  const by = (id) => document.getElementById(id);
  const all = (selector, within = document) => Array.from(within.querySelectorAll(selector));
  const conversations = all(".conversation");
  const links = all("#sidebar a");
  const find = by("find");
  const found = by("found");

  root.classList.add("js");
  for (const each of all(".bar, .filter")) each.hidden = false;

  function tell(text) {
    by("said").textContent = text;
  }

  // --- which conversation is shown, and what a link leads to

  function show(conversation) {
    for (const each of conversations) each.hidden = each !== conversation;
    for (const link of links) {
      if (link.hash === "#" + conversation.id) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    menu(false);
    if (find.value) mark();
  }

  function named(hash) {
    const raw = hash.slice(1);
    try {
      return by(raw) || by(decodeURIComponent(raw));
    } catch {
      return null;
    }
  }

  function unfold(element) {
    for (let each = element.parentElement; each; each = each.parentElement)
      if (each.localName === "details") each.open = true;
  }

  function follow() {
    for (const each of all(".message.target")) each.classList.remove("target");
    const element = location.hash ? named(location.hash) : conversations[0];
    const conversation = element && element.closest(".conversation");
    if (!conversation) return;
    if (conversation.hidden) show(conversation);
    menu(false);
    if (element === conversation) {
      scrollTo(0, 0);
      return;
    }
    element.classList.add("target"); // :target does not see what was hidden when the page came
    element.scrollIntoView({ block: "start" });
  }

  // --- the sidebar

  function menu(open) {
    if (!by("menu")) return;
    by("menu").setAttribute("aria-expanded", String(open));
    if (open) document.body.dataset.menu = "open";
    else delete document.body.dataset.menu;
  }

  function listed() {
    return links.filter((link) => !link.parentElement.hidden);
  }

  function narrow() {
    const words = by("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const link of links) {
      const text = (link.textContent + " " + link.title).toLowerCase();
      link.parentElement.hidden = !words.every((word) => text.includes(word));
    }
    by("sidebar").querySelector(".nothing").hidden = listed().length > 0;
  }

  function walk(event) {
    const rows = listed();
    const at = rows.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (to === undefined || (at < 0 && event.key !== "ArrowDown")) return;
    event.preventDefault();
    if (to < 0) by("filter").focus();
    else if (rows[to]) rows[to].focus();
  }

  // --- search

  let hits = [];
  let here = -1;
  let texts = null;
  let soon = 0;

  // What was said, without the page's own words and without what a heading shows of it a second time.
  function* said(element) {
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode())
      if (!node.parentElement.matches(".peek, .size, .label")) yield node;
  }

  function searched() {
    texts ??= all(".said").map((element) => [element, Array.from(said(element), (node) => node.data).join("")]);
    return texts;
  }

  function look() {
    clearTimeout(soon);
    soon = 0;
    const words = find.value.trim();
    hits = [];
    here = -1;
    if (words) {
      const pattern = new RegExp(words.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&").replace(/\s+/g, "\\s+"), "giu");
      for (const [element, text] of searched()) for (const each of text.matchAll(pattern)) hits.push([element, each.index, each[0].length]);
    }
    by("previous").disabled = by("next").disabled = hits.length === 0;
    count();
    if (hits.length) {
      const shown = hits.findIndex(([element]) => !element.closest(".conversation").hidden);
      go(shown < 0 ? 0 : shown);
    } else {
      found.textContent = words ? "No match" : "";
      mark();
    }
  }

  function count() {
    const per = new Map();
    for (const [element] of hits) {
      const id = element.closest(".conversation").id;
      per.set(id, (per.get(id) || 0) + 1);
    }
    for (const link of links) {
      link.querySelector(".hits")?.remove();
      const number = per.get(link.hash.slice(1));
      if (!number) continue;
      const badge = document.createElement("span");
      badge.className = "hits";
      badge.textContent = String(number);
      badge.title = number === 1 ? "1 match" : number + " matches";
      link.prepend(badge);
    }
  }

  function range([element, start, length]) {
    const made = document.createRange();
    let passed = 0;
    for (const node of said(element)) {
      if (passed <= start && start < passed + node.length) made.setStart(node, start - passed);
      if (start + length <= passed + node.length) {
        made.setEnd(node, start + length - passed);
        break;
      }
      passed += node.length;
    }
    return made;
  }

  function mark() {
    // By the browser's own highlights: no element of a message is touched.
    if (!globalThis.Highlight || !CSS.highlights) return;
    const shown = hits.filter(([element]) => !element.closest(".conversation").hidden).slice(0, 2000);
    CSS.highlights.set("found", new Highlight(...shown.map(range)));
    const current = new Highlight(...(here < 0 ? [] : [range(hits[here])]));
    current.priority = 1;
    CSS.highlights.set("here", current);
  }

  function go(to) {
    if (!hits.length) return;
    here = (to + hits.length) % hits.length;
    const at = range(hits[here]);
    const conversation = hits[here][0].closest(".conversation");
    if (conversation.hidden) show(conversation);
    unfold(at.startContainer);
    found.textContent = `${(here + 1).toLocaleString("en")} of ${hits.length.toLocaleString("en")}`;
    mark();
    hits[here][0].scrollIntoView({ block: "nearest" });
    const pre = at.startContainer.parentElement.closest("pre");
    if (pre) pre.scrollTop += at.getBoundingClientRect().top - pre.getBoundingClientRect().top - pre.clientHeight / 3;
    const box = at.getBoundingClientRect();
    if (box.top < 120 || box.bottom > innerHeight - 40) scrollBy(0, box.top - innerHeight / 3);
  }

  // --- folding, theme, links, print

  const folds = () => all("details");

  function foldAll() {
    const open = by("unfold").getAttribute("aria-pressed") !== "true";
    for (const each of folds()) each.open = open;
    by("unfold").setAttribute("aria-pressed", String(open));
    by("unfold").textContent = open ? "Collapse all" : "Expand all";
  }

  const themes = ["auto", "light", "dark"];
  function theme() {
    const next = themes[(themes.indexOf(root.dataset.theme || "auto") + 1) % themes.length];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    by("theme").textContent = "Theme: " + next;
  }

  const copied = new Set();
  async function copy(link) {
    if (copied.has(link)) return;
    copied.add(link);
    const label = link.textContent;
    let done = true;
    try {
      await navigator.clipboard.writeText(link.href);
    } catch {
      done = false; // the address bar has it then
    }
    tell(done ? "Link copied" : "Link is in the address bar");
    link.textContent = done ? "Link copied" : "Link above";
    setTimeout(() => {
      link.textContent = label;
      copied.delete(link);
    }, 1500);
  }

  let opened = [];
  function expand() {
    opened = opened.concat(folds().filter((each) => !each.open));
    for (const each of opened) each.open = true;
  }
  function restore() {
    for (const each of opened) each.open = false;
    opened = [];
  }

  addEventListener("beforeprint", expand);
  addEventListener("afterprint", restore);
  addEventListener("hashchange", follow);
  addEventListener("popstate", follow);
  find.addEventListener("input", () => {
    clearTimeout(soon);
    soon = setTimeout(look, 120);
  });
  find.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      if (soon) look();
      else go(here + (event.shiftKey ? -1 : 1));
    }
  });
  by("next").addEventListener("click", () => go(here + 1));
  by("previous").addEventListener("click", () => go(here - 1));
  by("unfold").addEventListener("click", foldAll);
  by("theme").addEventListener("click", theme);
  by("content").addEventListener("click", (event) => {
    const link = event.target.closest(".permalink");
    if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) copy(link);
  });
  if (links.length) {
    by("filter").addEventListener("input", narrow);
    by("sidebar").addEventListener("keydown", walk);
    by("menu").addEventListener("click", () => menu(by("menu").getAttribute("aria-expanded") !== "true"));
    by("sidebar").addEventListener("click", (event) => {
      const link = event.target.closest("a");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault(); // a browser would take the focus out of the list
      history.pushState(null, "", link.hash);
      follow();
    });
  }
  addEventListener("keydown", (event) => {
    const typing = /^(input|textarea)$/.test(document.activeElement?.localName ?? "");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      find.focus();
      find.select();
    } else if (event.key === "Escape") {
      if (document.body.dataset.menu) menu(false);
      else if (document.activeElement === find) {
        find.value = "";
        look();
      }
    }
  });

  if (conversations.length > 1) show(conversations[0]);
  follow();
})();
