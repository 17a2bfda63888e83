// The page: selection, list, and keys. `#e17` is event 17; `#e17/seen` is what the model saw there.
(R => {
  "use strict";

  const { useEffect, useMemo, useRef, useState } = preactHooks;
  const html = htm.bind(preact.h);
  const MODES = ["turns", "all", "conversation", "raw"];
  const SETTLED = 120; // milliseconds without another key before the address is updated: browsers limit how often it may be

  const KEYS = [
    ["j / k, ↓ / ↑", "next, previous event"], ["n / p", "next, previous turn"], ["e / E", "next, previous error or damage"], ["c / C", "next, previous call that changed something"],
    ["x / X", "next, previous verdict of a guard or limit"], ["h / H", "next, previous change of the history"],
    ["g / G", "first, last event"], ["b", "the fact that a decision follows from"], ["t / T", "next, previous tab"], ["1 – 5", "a tab by its number"],
    ["m", "another list: turns, all, conversation, raw"], ["/", "filter; Enter returns to the list, Escape clears the filter"],
    ["Enter", "into the inspector, to scroll it"], ["?", "this help"],
  ];

  function addressed() {
    const found = /^#e([1-9][0-9]{0,11})(?:\/([a-z]+))?$/.exec(location.hash);
    return found ? { seq: Number(found[1]), tab: found[2] } : {};
  }

  // Whether the screen matches a media query, now and after changes.
  function useMedia(question) {
    const query = useMemo(() => matchMedia(question), []);
    const [holds, setHolds] = useState(query.matches);
    useEffect(() => {
      const look = () => setHolds(query.matches);
      query.addEventListener("change", look);
      return () => query.removeEventListener("change", look);
    }, []);
    return holds;
  }

  // The matching events found so far; `looked`: how many were searched, undefined once all were. Null without a filter.
  function useFound(model, chosen) {
    const search = useMemo(() => (chosen.empty ? null : R.searching(model.events, chosen)), [chosen]);
    const [, setNews] = useState(0);
    useEffect(() => search?.goOn(() => setNews(news => news + 1)), [search]);
    return search && search.found;
  }

  function useFilter(model, mode) {
    const [text, setText] = useState("");
    const [filter, problem] = useMemo(() => {
      try {
        return [R.parse(text, model.fields), null];
      } catch (error) {
        return [null, `${error.message} (at character ${error.at ?? 1})`];
      }
    }, [text]);
    // An incomplete filter changes nothing: the list stays as it was.
    const last = useRef(filter);
    if (filter) last.current = filter;
    const chosen = last.current;
    R.seek(chosen.sought);
    const found = useFound(model, chosen);
    const rows = useMemo(() => R.rowsOf(model, mode, found && found.events, chosen.sought), [mode, found]);
    const places = useMemo(() => R.places(model, rows), [rows]);
    return { text, setText, problem, rows, places, chosen, empty: chosen.empty, looked: found?.looked };
  }

  function useSelection(model) {
    const first = addressed();
    const at = seq => model.events.length ? model.events[R.nearest(model.events, seq)].seq : 0;
    const [selected, select] = useState(() => at(first.seq ?? R.opening(model)));
    const [tab, setTab] = useState(R.TABS.some(([name]) => name === first.tab) ? first.tab : "event");
    const typed = useRef(false);
    const own = useRef(""); // an address set here: when the browser reports it, another event may be selected
    useEffect(() => {
      const follow = () => {
        const ours = location.hash === own.current;
        own.current = "";
        if (ours) return;
        const { seq, tab: wanted } = addressed();
        if (seq) select(at(seq));
        if (R.TABS.some(([name]) => name === wanted)) setTab(wanted);
      };
      addEventListener("hashchange", follow);
      return () => removeEventListener("hashchange", follow);
    }, []);
    useEffect(() => {
      if (!typed.current) {
        typed.current = true;
        return undefined;
      }
      const before = location.hash;
      const timer = setTimeout(() => {
        const hash = `#e${selected}${tab === "event" ? "" : `/${tab}`}`;
        // Any other address was opened by the user, and is about to be followed.
        if (location.hash !== before || hash === before) return;
        own.current = hash;
        location.replace(hash);
      }, SETTLED);
      return () => clearTimeout(timer);
    }, [selected, tab]);
    return { selected, select, tab, setTab };
  }

  // What a key does; while the user types, only keys that leave the field.
  function keys(state) {
    const { model, filter, selected, select, tab, setTab, mode, setMode, setHelp, filterBox } = state;
    const { rows, places } = filter;
    const here = places.of(selected);
    const to = found => found && (found.seq === selected ? R.reveal() : select(found.seq));
    const step = by => {
      // Before the first row there is no row to step from; calls without a result share the event of another row.
      const first = by > 0 && rows[here]?.seq > selected && rows[here].turn?.first !== selected;
      const ahead = by > 0 ? rows.slice(first ? here : here + 1) : rows.slice(0, here).reverse();
      to(ahead.find(row => row.seq !== selected));
    };
    const turn = by => {
      const { turn: now } = model.event(selected) || { turn: 0 };
      to(rows.find(row => row.event.turn === now + by) ?? (by > 0 ? rows.find(row => row.event.turn > now) : undefined));
    };
    const mark = (kind, by) => to(R.stepped(R.marked(model, kind), selected, by));
    const nextTab = by => {
      const at = R.TABS.findIndex(([name]) => name === tab);
      setTab(R.TABS[(at + by + R.TABS.length) % R.TABS.length][0]);
    };
    return {
      j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1), n: () => turn(1), p: () => turn(-1),
      e: () => mark("errors", 1), E: () => mark("errors", -1), x: () => mark("guards", 1), X: () => mark("guards", -1),
      c: () => mark("changes", 1), C: () => mark("changes", -1), h: () => mark("history", 1), H: () => mark("history", -1), g: () => to(rows[0]), G: () => to(rows[rows.length - 1]),
      b: () => to(model.event(model.event(selected)?.fact)), t: () => nextTab(1), T: () => nextTab(-1),
      m: () => setMode(MODES[(MODES.indexOf(mode) + 1) % MODES.length]), "/": () => filterBox.current.focus(),
      Enter: () => document.querySelector(".inspector .body")?.focus(), "?": () => setHelp(shown => !shown), Escape: () => (setHelp(false), state.setSheet(false)),
      ...Object.fromEntries(R.TABS.map(([name], place) => [String(place + 1), () => setTab(name)])),
    };
  }

  function onKey(pressed, map) {
    if (pressed.ctrlKey || pressed.metaKey || pressed.altKey) return;
    const { target } = pressed;
    if (/^(input|textarea|select)$/i.test(target.tagName)) return;
    if (target.closest?.(".inspector") && ["ArrowDown", "ArrowUp"].includes(pressed.key)) return;
    if (pressed.key === "Enter" && /^(a|button|summary)$/i.test(target.tagName) && !target.classList.contains("row")) return;
    const act = Object.hasOwn(map, pressed.key) && map[pressed.key];
    if (!act) return;
    pressed.preventDefault();
    act();
  }

  function Help({ fields, close }) {
    return html`<div class="help" role="dialog" aria-label="help" onClick=${close}><div onClick=${e => e.stopPropagation()}>
      <h2>keys</h2><table><tbody>${KEYS.map(([key, what]) => html`<tr><th>${key}</th><td>${what}</td></tr>`)}</tbody></table>
      <h2>filter</h2><p>Conditions side by side must all hold: <code>type:tool name:bash error:true tokens>2000 turn:10..20 text:"rm -rf"
        verdict:refused</code>. <code>-</code> or <code>not</code> before one negates it, <code>or</code> separates alternatives,
        parentheses group them, <code>*</code> matches anything, <code>~</code> precedes a regular expression. A single word is searched in payloads. It is the
        language of <code>refold grep</code>.</p>
      <details><summary>fields</summary><table><tbody>${Object.entries(fields).map(([name, field]) => html`<tr><th>${name}</th><td>${field.means}</td></tr>`)}</tbody></table></details>
      <h2>licences</h2><pre class="text mono">${document.getElementById("licences").textContent}</pre></div></div>`;
  }

  function Bar({ model, chain, selected, select, filter, mode, setMode, box, setHelp }) {
    const onKeyDown = pressed => {
      if (pressed.key === "Escape") filter.setText("");
      if (pressed.key === "Escape" || pressed.key === "Enter") document.querySelector(".list").focus();
    };
    return html`<div class="bar"><div class="modes" role="group" aria-label="list">${MODES.map(name => html`<button data-mode=${name} class=${name === mode ? "on" : ""}
        onClick=${() => setMode(name)}>${name}</button>`)}</div>
      <input class=${filter.problem ? "filter wrong" : "filter"} ref=${box} type="search" spellcheck="false" autocomplete="off" aria-label="filter"
        placeholder="filter: type:tool error:true text:…   ( / )" value=${filter.text} onInput=${e => filter.setText(e.target.value)} onKeyDown=${onKeyDown} />
      <${R.Steps} model=${model} chain=${chain} selected=${selected} select=${select} />
      <span class="counted">${filter.empty ? "" : `${R.count(filter.rows.length)} of `}${R.count(filter.looked ?? model.events.length)} events${filter.looked === undefined ? "" : " …"}</span>
      <button class="ask" title="keys and filter" onClick=${() => setHelp(true)}>?</button>
      ${filter.problem && html`<p class="problem">${R.line(filter.problem)}</p>`}</div>`;
  }

  // A long run opens compact; following a link opens its target.
  function firstMode(model) {
    const { seq } = addressed();
    return !seq || R.places(model, R.rowsOf(model, "turns", null)).own.has(seq) ? "turns" : "all";
  }

  function App({ model }) {
    const [chain, setChain] = useState(() => (model.chain = R.unchecked()));
    const [mode, setMode] = useState(() => firstMode(model));
    const [help, setHelp] = useState(false);
    const filterBox = useRef(null);
    const filter = useFilter(model, mode);
    const selection = useSelection(model);
    const { selected, select, tab, setTab } = selection;
    const [dark, narrow] = [useMedia("(prefers-color-scheme: dark)"), useMedia("(max-width: 700px)")];
    const [small, shrink] = useState(false);
    const [sheet, setSheet] = useState(false); // on a narrow screen: whether the inspector is open
    useEffect(() => R.checkChain(model, found => { model.chain = found; setChain(found); }), [model]);
    const map = keys({ model, filter, mode, setMode, setHelp, setSheet, filterBox, ...selection });
    const current = useRef(map);
    current.current = map;
    useEffect(() => {
      const listen = pressed => onKey(pressed, current.current);
      addEventListener("keydown", listen);
      return () => removeEventListener("keydown", listen);
    }, []);
    // A new filter selects its first hit, unless the selected event matches it, too.
    const answered = useRef(null);
    useEffect(() => {
      if (filter.empty || answered.current === filter.chosen || !filter.rows.length) return;
      answered.current = filter.chosen;
      if (!filter.places.own.has(selected)) select(filter.rows[0].seq);
    }, [filter.chosen, filter.rows]);
    const event = model.event(selected);
    const hidden = event && !filter.empty && !filter.places.own.has(selected);
    return html`<div class=${["page", small ? "small" : "", model.costs ? "" : "costless"].join(" ")}><${R.Header} model=${model} chain=${chain} />
      <${R.Strip} model=${model} selected=${selected} select=${select} chain=${chain} dark=${dark} small=${small || narrow} />
      <${Bar} model=${model} chain=${chain} selected=${selected} select=${select} filter=${filter} mode=${mode} setMode=${setMode} box=${filterBox} setHelp=${setHelp} />
      <main><${R.Listing} model=${model} rows=${filter.rows} places=${filter.places} mode=${mode} selected=${selected} chain=${chain} narrow=${narrow}
          shrink=${shrink} opens=${() => setSheet(true)} />
        <${R.Inspector} model=${model} event=${event} tab=${tab} setTab=${setTab} hidden=${hidden} sheet=${sheet} close=${() => setSheet(false)} /></main>
      ${help && html`<${Help} fields=${model.fields} close=${() => setHelp(false)} />`}</div>`;
  }

  R.start = () => {
    const app = document.getElementById("app");
    try {
      R.model = R.load(R.told());
    } catch (error) {
      // The page was edited: do not display part of a run as if it were all of it.
      const edited = R.edited();
      preact.render(html`<p class="alarm" role="alert">${edited.length > 0 && `${R.line(R.editedSaid(edited), 1000)}. `}This page is damaged and cannot be read: ${R.line(error.message)}</p>`, app);
      return;
    }
    preact.render(html`<${App} model=${R.model} />`, app);
  };
})((self.refold ||= {}));

refold.start();
