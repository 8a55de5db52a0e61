// Shows the cases of the chosen verdicts whose name or title has the text.
const text = document.querySelector('input[type=search]');
const boxes = [...document.querySelectorAll('input[type=checkbox]')];
function show() {
  const chosen = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
  const wanted = text.value.toLowerCase();
  for (const line of document.querySelectorAll('details.case'))
    line.hidden = !chosen.has(line.dataset.r) || !line.dataset.t.includes(wanted);
}
boxes.forEach((box) => { box.onchange = show; });
text.oninput = show;
show();
