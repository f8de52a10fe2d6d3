// menu.js - the menu of every view: its command, its picture, its table.

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch (_) {
    const area = el('textarea', { class: 'unseen' }); // without the right to the clipboard
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  say('Copied');
}

function copyButton(text) {
  const button = el('button', { type: 'button', onclick: async () => {
    await copyText(text());
    button.textContent = 'Copied';
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  } }, 'Copy');
  return button;
}

// view: {name, commands: () => [text], picture: () => {width, height, parts} or null, table: () => [trace, table] or lines of cells}
function saveMenu(view) {
  const menu = el('details', { class: 'save', 'data-view': view.name }), body = el('div', { class: 'save-body' });
  const act = (label, run) => el('button', { type: 'button', 'data-save': label, onclick: () => {
    menu.open = false;
    Promise.resolve(run()).catch((e) => problem(`${label} could not be saved: ${e && e.message}`));
  } }, label);
  menu.append(el('summary', { 'aria-label': `Save ${view.name}` }, 'Save'), body);
  menu.addEventListener('toggle', () => {
    if (!menu.open)
      return;
    document.querySelectorAll('details.save[open]').forEach((d) => { d.open = d === menu; });
    body.replaceChildren(...view.commands().filter(Boolean).map((text) => el('div', { class: 'command' }, el('code', {}, wholeWords(text)),
      copyButton(() => text))), el('div', { class: 'buttons' }, view.picture && view.picture() ? [act('SVG', () => saveSvg(view)), act('PNG', () => savePng(view))] : [],
      view.table ? [act('TSV', () => saveTable(view, false)), act('CSV', () => saveTable(view, true))] : []));
  });
  menu.addEventListener('keydown', (e) => {
    if (e.key !== 'Escape' || !menu.open)
      return;
    e.stopPropagation();
    menu.open = false;
    menu.querySelector('summary').focus();
  });
  return menu;
}

function listenToMenus() {
  document.addEventListener('pointerdown', (e) => document.querySelectorAll('details.save[open]').forEach((d) => {
    if (!d.contains(e.target))
      d.open = false;
  }));
}
