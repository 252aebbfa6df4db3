"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const said = document.getElementById("said");
  document.documentElement.classList.add("runs-script");

  // Copying. A page that was opened as a file may have no navigator.clipboard.
  function copiedByHand(text) {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "unseen";
    document.body.append(area);
    area.select();
    let done = false;
    try { done = document.execCommand("copy"); } catch { /* the browser forbids it */ }
    area.remove();
    return done;
  }
  async function copied(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return copiedByHand(text);
    }
  }
  all(".copy").forEach((button) => button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    const done = await copied(code.textContent);
    button.focus();
    if (!done) getSelection().selectAllChildren(code);
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    said.textContent = done ? "Copied." : "The command is selected: press Ctrl+C.";
    setTimeout(() => { button.textContent = "Copy"; said.textContent = ""; }, 2500);
  }));

  // Light or dark: the system's choice, unless one was made here.
  const media = { auto: "screen and (prefers-color-scheme: dark)", light: "not all", dark: "screen" };
  const themes = all("[data-theme]");
  themes.forEach((button) => button.addEventListener("click", () => {
    document.getElementById("dark").media = media[button.dataset.theme];
    themes.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
  }));

  // This page under the name that it has now.
  const file = decodeURIComponent(location.pathname.split("/").pop());
  const again = document.querySelector("#again code");
  if (again && location.protocol === "file:" && file) {
    const word = /^[\w.+@%-][\w.+@%:,=-]*$/.test(file) && !file.startsWith("-") ? file : `'./${file.replaceAll("'", "'\\''")}'`;
    again.textContent = `gpudoctor report ${word} --format text`;
  }

  // The snapshot in this page.
  let taken;
  async function snapshot() {
    const element = document.getElementById("snapshot");
    const bytes = Uint8Array.from(atob(element.textContent.trim()), (letter) => letter.charCodeAt(0));
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(plain).text();
  }
  async function answers() {
    taken ??= snapshot().then((text) => {
      const { replies = {}, measured = {}, host = {} } = JSON.parse(text);
      const named = [["", replies], ["measured ", measured], ["host ", host]];
      return named.flatMap(([before, found]) => Object.entries(found).map(([name, reply]) =>
        [before + name, typeof reply.value === "string" ? reply.value : JSON.stringify(reply.value ?? reply.detail ?? "")]));
    });
    return taken;
  }
  const MOST = 40, AROUND = 70;
  async function search(box, word) {
    const list = box.querySelector("ul");
    if (word.length < 2) { box.hidden = true; return; }
    const found = [];
    for (const [name, text] of await answers()) {
      const at = `${name} ${text}`.toLowerCase().indexOf(word);
      if (at >= 0) found.push([name, text.slice(Math.max(0, at - name.length - 1 - AROUND), at - name.length + AROUND + word.length)]);
    }
    list.replaceChildren(...found.slice(0, MOST).map(([name, text]) => {
      const item = document.createElement("li"), code = document.createElement("code");
      code.textContent = name;
      item.append(code, ` … ${text} …`);
      return item;
    }));
    box.hidden = false;
    box.querySelector("h3").textContent = found.length
      ? `In what the machine answered: ${found.length}` : "In what the machine answered: nothing";
  }
  const save = document.getElementById("save");
  save?.addEventListener("click", async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([await snapshot()], { type: "application/json" }));
    link.download = "snapshot.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });

  // Finding: rows that lack a word of the search are hidden.
  all("input[data-rows]").forEach((input) => {
    const rows = all(input.dataset.rows);
    const texts = rows.map((row) => `${row.dataset.area ?? ""} ${row.textContent}`.toLowerCase());
    const count = input.parentElement.querySelector(".count");
    let before;
    input.addEventListener("input", () => {
      const word = input.value.trim().toLowerCase();
      const wanted = word.split(/\s+/);
      let shown = 0;
      rows.forEach((row, number) => {
        row.hidden = !wanted.every((part) => texts[number].includes(part));
        shown += !row.hidden;
      });
      count.textContent = word ? `${shown} of ${rows.length}` : "";
      const areas = new Set(rows.map((row) => row.closest("details.area")).filter(Boolean));
      if (word && !before) before = new Map([...areas].map((area) => [area, area.open]));
      areas.forEach((area) => {
        area.hidden = Boolean(word) && !area.querySelector(".check:not([hidden])");
        area.open = word ? true : before?.get(area) ?? area.open;
      });
      if (!word) before = undefined;
      const box = input.dataset.answers && document.querySelector(input.dataset.answers);
      if (box) search(box, word).catch(() => { box.hidden = true; });
    });
  });

  // On paper everything is open.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all("details:not([open])");
    closed.forEach((details) => { details.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((details) => { details.open = false; }));
})();
