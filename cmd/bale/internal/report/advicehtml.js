// The page is whole without this: it sorts and filters tables, copies commands, and opens all sections before printing.
"use strict";
(() => {
	const status = document.getElementById("status");
	const say = (what) => { status.textContent = what; };

	// What a cell is sorted by: its text, or the number in it; amounts with units bring one along.
	const valueOf = (cell) => {
		const text = cell.textContent.trim();
		if (cell.matches(".t, th")) return text;
		return Number(cell.dataset.v ?? text.replace(/[,$%<]/g, "").replace("\u2212", "-")) || 0;
	};
	for (const table of document.querySelectorAll("table.sortable")) {
		const body = table.tBodies[0];
		const heads = [...table.tHead.rows[0].cells];
		heads.forEach((head, column) => {
			const button = document.createElement("button");
			button.type = "button";
			button.append(...head.childNodes);
			head.append(button);
			button.addEventListener("click", () => {
				const text = head.classList.contains("t");
				const now = head.getAttribute("aria-sort");
				const down = now ? now === "ascending" : !text; // numbers: the largest first
				const rows = [...body.rows];
				rows.sort((a, b) => {
					const [x, y] = [valueOf(a.cells[column]), valueOf(b.cells[column])];
					const order = typeof x === "number" ? x - y : x.localeCompare(y, undefined, { numeric: true });
					return down ? -order : order;
				});
				body.append(...rows);
				heads.forEach((h) => h.removeAttribute("aria-sort"));
				head.setAttribute("aria-sort", down ? "descending" : "ascending");
				say(`Sorted by ${button.textContent}, ${down ? "descending" : "ascending"}`);
			});
		});
		const what = table.dataset.filter;
		if (what && body.rows.length > 5) {
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
				const word = input.value.trim().toLowerCase();
				let n = 0;
				for (const row of body.rows) {
					row.hidden = !row.textContent.toLowerCase().includes(word);
					n += row.hidden ? 0 : 1;
				}
				shown.textContent = word ? `${n} of ${body.rows.length}` : "";
			});
			line.append(label, input, shown);
			table.closest(".scroll").before(line);
		}
	}

	for (const pre of document.querySelectorAll("pre.copy")) {
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
	}

	addEventListener("beforeprint", () => {
		for (const details of document.querySelectorAll("details")) details.open = true;
	});
})();
