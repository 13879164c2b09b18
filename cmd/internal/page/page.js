// The page is whole without this: it sorts and filters tables, copies commands, and opens all sections before printing.
const status = document.getElementById("status");
const say = (what) => { status.textContent = what; };

// What a cell is sorted by: its text up to the first element in it, or the number in that; amounts with units bring one along.
const valueOf = (cell) => {
	if (cell.matches(".t, th")) return cell.textContent.trim();
	const text = cell.firstChild?.textContent.trim() ?? "";
	return Number(cell.dataset.v ?? text.replace(/[,$%<]/g, "").replace("\u2212", "-")) || 0;
};
const sort = (table, column, down) => {
	const body = table.tBodies[0];
	const heads = [...table.tHead.rows[0].cells];
	const rows = [...body.rows].map((row) => [row, valueOf(row.cells[column])]);
	rows.sort(([, x], [, y]) => {
		const order = typeof x === "number" ? x - y : x.localeCompare(y, undefined, { numeric: true });
		return down ? -order : order;
	});
	body.append(...rows.map(([row]) => row));
	heads.forEach((h) => h.removeAttribute("aria-sort"));
	heads[column].setAttribute("aria-sort", down ? "descending" : "ascending");
};
const sortable = (table) => {
	[...table.tHead.rows[0].cells].forEach((head, column) => {
		const button = document.createElement("button");
		button.type = "button";
		button.append(...head.childNodes);
		head.append(button);
		button.addEventListener("click", () => {
			const now = head.getAttribute("aria-sort");
			const down = now ? now === "ascending" : !head.classList.contains("t"); // numbers: the largest first
			sort(table, column, down);
			say(`Sorted by ${button.textContent}, ${down ? "descending" : "ascending"}`);
		});
	});
};
// filtered gives a table a box for words: rows are shown that have all of them.
const filtered = (table, what) => {
	const body = table.tBodies[0];
	const line = document.createElement("p");
	line.className = "filter";
	const label = document.createElement("label");
	label.htmlFor = table.id + "-filter";
	label.textContent = what;
	const input = document.createElement("input");
	input.id = label.htmlFor;
	input.type = "search";
	input.autocomplete = "off";
	input.spellcheck = false;
	const shown = document.createElement("output");
	input.addEventListener("input", () => {
		const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
		let n = 0;
		for (const row of body.rows) {
			const text = row.textContent.toLowerCase();
			row.hidden = !words.every((word) => text.includes(word));
			n += row.hidden ? 0 : 1;
		}
		shown.textContent = words.length ? `${n} of ${body.rows.length}` : "";
	});
	line.append(label, input, shown);
	table.closest(".scroll").before(line);
};
const copied = (pre) => {
	const button = document.createElement("button");
	button.type = "button";
	button.textContent = "Copy";
	const box = document.createElement("div");
	box.className = "copying";
	pre.before(box);
	box.append(pre, button);
	const select = () => {
		const range = document.createRange();
		range.selectNodeContents(pre);
		const selection = getSelection();
		selection.removeAllRanges();
		selection.addRange(range);
	};
	button.addEventListener("click", async () => {
		let done = false;
		try {
			await navigator.clipboard.writeText(pre.textContent);
			done = true;
		} catch { // browsers may refuse it to files
			select();
			done = document.execCommand("copy");
		}
		button.textContent = done ? "Copied" : "Selected";
		say(done ? "Copied" : "Selected: copy it by keyboard");
		setTimeout(() => { button.textContent = "Copy"; }, 2000);
	});
};
const enhance = (root) => {
	for (const table of root.querySelectorAll("table.sortable")) {
		sortable(table);
		if (table.dataset.filter && table.tBodies[0].rows.length > 5) filtered(table, table.dataset.filter);
	}
	for (const pre of root.querySelectorAll("pre.copy")) copied(pre);
};
enhance(document);
addEventListener("beforeprint", () => {
	for (const details of document.querySelectorAll("details")) details.open = true;
});
