
// A page of the lab: shows one set of values at a time, groups of columns, and a run that goes on.
const main = document.getElementById("content");

// picked shows the sheet of that id; all of them where there is none.
let picked;
const pick = (id) => {
	const select = document.getElementById("picked");
	if (!select) return;
	const ids = [...select.options].map((o) => o.value);
	picked = ids.includes(id) ? id : ids[0];
	select.value = picked;
	document.getElementById("picker").hidden = false;
	for (const sheet of main.querySelectorAll(".sheet")) sheet.hidden = picked !== "all" && sheet.id !== picked;
};
main.addEventListener("change", (event) => {
	if (event.target.id === "picked") pick(event.target.value);
});
main.addEventListener("submit", (event) => event.preventDefault());
main.addEventListener("click", (event) => {
	const step = { "picked-before": -1, "picked-next": 1 }[event.target.id];
	if (!step) return;
	const select = document.getElementById("picked");
	select.selectedIndex = (select.selectedIndex + step + select.options.length) % select.options.length;
	pick(select.value);
	say(`Shown: ${select.selectedOptions[0].textContent}`);
});
// A link to a sheet shows it, before the browser goes there.
main.addEventListener("click", (event) => {
	const link = event.target.closest("a[href^='#']");
	const sheet = link && document.getElementById(link.hash.slice(1));
	if (sheet?.matches(".sheet") && sheet.hidden) pick(sheet.id);
});
addEventListener("beforeprint", () => pick("all"));

// Columns that belong together are shown and hidden together.
const grouped = (table) => {
	const heads = [...table.tHead.rows[0].cells];
	const names = [...new Set(heads.map((h) => h.dataset.group).filter(Boolean))];
	if (!names.length) return;
	const set = document.createElement("fieldset");
	set.className = "groups";
	set.append(Object.assign(document.createElement("legend"), { textContent: "More columns:" }));
	for (const name of names) {
		const box = Object.assign(document.createElement("input"), { type: "checkbox", id: `${table.id}-${name.toLowerCase()}` });
		const label = document.createElement("label");
		label.append(box, " " + name);
		set.append(label);
		const show = () => {
			heads.forEach((head, column) => {
				if (head.dataset.group !== name) return;
				for (const row of table.rows) row.cells[column].hidden = !box.checked;
			});
		};
		box.checked = !(table.dataset.hidden ?? "").split(" ").includes(name);
		box.addEventListener("change", show);
		show();
	}
	table.closest(".scroll").before(set);
};

// Flame graphs are data until one is asked for. A node is four numbers: the index of its name, its depth, its part of the whole in
// 1/100,000, and the index of its category; what a function called follows it, one deeper.
const svg = (name, attributes, ...content) => {
	const e = document.createElementNS("http://www.w3.org/2000/svg", name);
	for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
	e.append(...content);
	return e;
};
const percent = (part) => `${(part * 100).toFixed(1)}%`;
const nodesOf = (forest, tree) => {
	const nodes = [], next = [0];
	for (let i = 0; i < tree.nodes.length; i += 4) {
		const [name, depth, part, category] = tree.nodes.slice(i, i + 4);
		const x = next[depth] ?? 0;
		next.length = depth;
		next.push(x + part, x);
		nodes.push({ name: forest.names[name], depth, part, category: forest.categories[category], x });
	}
	return nodes;
};
// flameOf draws what lies below a node, which is as wide as the picture.
const flameOf = (nodes, top, width, zoom) => {
	const row = 19, below = nodes.filter((n) => n.x >= top.x && n.x + n.part <= top.x + top.part && (n.depth > top.depth || n === top));
	const depth = Math.max(...below.map((n) => n.depth)) - top.depth + 1;
	const picture = svg("svg", { class: "flame", viewBox: `0 0 ${width} ${depth * row}`, "aria-hidden": "true" });
	for (const n of below) {
		const x = (n.x - top.x) / top.part * width, w = n.part / top.part * width, y = (n.depth - top.depth) * row;
		if (w < 0.4) continue;
		const group = svg("g", { class: "flame-" + n.category }, svg("title", {}, `${n.name}: ${percent(n.part / 1e5)}`), svg("rect", { x, y, width: w, height: row - 1 }));
		const room = Math.floor((w - 6) / 6.9);
		if (room > 2) group.append(svg("text", { x: x + 3, y: y + row - 6 }, n.name.length > room ? n.name.slice(0, room - 1) + "\u2026" : n.name));
		group.addEventListener("click", () => zoom(n === top ? nodes[0] : n));
		picture.append(group);
	}
	return picture;
};
// mostOf are the functions that cost most without what they called.
const mostOf = (nodes) => {
	const own = new Map(), above = [];
	for (const n of nodes) {
		above[n.depth] = n.name;
		if (n.depth > 0) own.set(n.name, (own.get(n.name) ?? 0) + n.part);
		if (n.depth > 1) own.set(above[n.depth - 1], own.get(above[n.depth - 1]) - n.part);
	}
	return [...own].filter(([name, part]) => part > 0 && name !== "(other)").sort(([, a], [, b]) => b - a).slice(0, 5);
};
const graphed = (data) => {
	const table = data.parentElement.querySelector("table");
	let forest;
	const figure = document.createElement("figure");
	figure.className = "graph";
	figure.id = table.id + "-graph";
	figure.hidden = true;
	table.closest(".scroll").after(figure);
	const barOf = (tree) => {
		const bar = svg("svg", { class: "shares", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
		let x = 0;
		forest.categories.forEach((name, i) => {
			bar.append(svg("rect", { class: "flame-" + name, x: 100 * x, width: 100 * tree.shares[i], height: 10 }));
			x += tree.shares[i];
		});
		return bar;
	};
	const open = () => {
		forest = JSON.parse(data.content.textContent);
		for (const row of table.tBodies[0].rows) {
			const at = /\btree-(\d+)/.exec(row.className);
			if (!at) continue;
			const tree = forest.trees[at[1]], head = row.cells[0];
			const button = Object.assign(document.createElement("button"), { type: "button" });
			button.append(...head.childNodes);
			button.setAttribute("aria-expanded", "false");
			button.setAttribute("aria-controls", figure.id);
			head.append(button, barOf(tree));
			button.addEventListener("click", () => {
				const shown = button.getAttribute("aria-expanded") === "true";
				for (const other of table.querySelectorAll("button[aria-expanded]")) other.setAttribute("aria-expanded", "false");
				figure.hidden = shown;
				if (shown) return;
				button.setAttribute("aria-expanded", "true");
				const nodes = nodesOf(forest, tree), what = [...row.cells].slice(0, 3).map((c) => c.textContent).join(", ");
				const caption = document.createElement("figcaption");
				const most = mostOf(nodes).map(([name, part]) => `${name} ${percent(part / 1e5)}`).join(", ");
				caption.textContent = `${what}: each box is a function, as wide as what it took with all that it called, which stands below it. A click on one makes it as wide as the picture; one on the topmost shows all again.${most ? ` Most was spent in ${most}.` : ""}`;
				const legend = document.createElement("ul");
				forest.categories.forEach((name, i) => {
					if (!tree.shares[i]) return;
					const line = document.createElement("li");
					line.append(svg("svg", { viewBox: "0 0 12 10", "aria-hidden": "true" }, svg("rect", { class: "flame-" + name, width: 12, height: 10 })), `${name} ${percent(tree.shares[i])}`);
					legend.append(line);
				});
				const zoom = (top) => figure.replaceChildren(caption, flameOf(nodes, top, Math.max(figure.clientWidth, 300), zoom), legend);
				zoom(nodes[0]);
				figure.scrollIntoView({ block: "nearest" });
			});
		}
	};
	const details = data.closest("details");
	details.addEventListener("toggle", () => { if (details.open && !forest) open(); });
};
const benchEnhance = (root) => {
	for (const table of root.querySelectorAll("table.sortable")) grouped(table);
	for (const data of root.querySelectorAll("template.flames")) graphed(data);
};
benchEnhance(main);
pick(location.hash.slice(1));

// What the user did is found again by where it stands: below what has an id, so-and-so-manieth.
const pathOf = (e) => {
	let path = "";
	for (; e && !e.id; e = e.parentElement) path = `>${e.localName}:nth-child(${1 + [...e.parentElement.children].indexOf(e)})` + path;
	return e ? `#${CSS.escape(e.id)}${path}` : "";
};
const stateOf = (part) => {
	const state = [];
	const keep = (e, restore) => state.push([pathOf(e), restore]);
	for (const e of part.querySelectorAll("details")) {
		const { open } = e;
		keep(e, (e) => { e.open = open; });
	}
	for (const e of part.querySelectorAll("input")) {
		const { checked, value, type } = e;
		if (type === "checkbox") keep(e, (e) => { e.checked = checked; e.dispatchEvent(new Event("change")); });
		else keep(e, (e) => { e.value = value; e.dispatchEvent(new Event("input")); });
	}
	for (const e of part.querySelectorAll("th[aria-sort]")) {
		const name = e.textContent, down = e.getAttribute("aria-sort") === "descending";
		keep(e.closest("table"), (table) => {
			const column = [...table.tHead.rows[0].cells].findIndex((h) => h.textContent === name);
			if (column >= 0) sort(table, column, down);
		});
	}
	for (const e of part.querySelectorAll(".scroll")) {
		const { scrollLeft } = e;
		if (scrollLeft) keep(e, (e) => { e.scrollLeft = scrollLeft; });
	}
	const focus = document.activeElement;
	if (part.contains(focus)) {
		const { selectionStart, selectionEnd } = focus;
		keep(focus, (e) => {
			e.focus({ preventScroll: true });
			if (selectionStart != null) e.setSelectionRange(selectionStart, selectionEnd);
		});
	}
	return state;
};

// replace shows another content: the parts of it that changed are exchanged, others are not touched.
const shown = new Map(); // by id, as it came
const replace = (html) => {
	const next = [...new DOMParser().parseFromString(html, "text/html").body.children];
	const kept = new Set(next.map((part) => part.id));
	for (const part of [...main.children]) {
		if (!kept.has(part.id)) part.remove();
	}
	let before = null;
	for (const part of next) {
		const old = [...main.children].find((e) => e.id === part.id);
		const came = part.outerHTML;
		let now = old;
		if (!old || shown.get(part.id) !== came) {
			const state = old ? stateOf(old) : [];
			if (old) old.replaceWith(part);
			else if (before) before.after(part);
			else main.prepend(part);
			now = part;
			shown.set(part.id, came);
			enhance(part);
			benchEnhance(part);
			if (part.matches(".sheet, #picker")) pick(picked);
			for (const [path, restore] of state) {
				const e = path && document.querySelector(path);
				if (e) restore(e);
			}
		}
		if (before && before.nextElementSibling !== now) before.after(now);
		before = now;
	}
	document.title = document.getElementById("top").dataset.title;
};

const live = () => document.getElementById("top").dataset.live === "true";
const ask = async () => {
	if (!document.hidden) { // nobody looks: the run has the machine for itself
		try {
			const answer = await fetch("content", { cache: "no-cache" });
			if (!answer.ok) throw new Error(answer.statusText);
			replace(await answer.text());
			main.removeAttribute("data-lost");
		} catch {
			main.setAttribute("data-lost", "The run has ended or cannot be reached: these are its last figures.");
		}
	}
	if (live()) setTimeout(ask, 2000);
};
if (live()) ask();
