// Long texts of the log: rendered or raw, cut until expanded, and copied.
(R => {
  "use strict";

  const { useState } = preactHooks;
  const html = htm.bind(preact.h);
  const MOST = 20000; // characters of a text that are displayed until it is expanded

  let preferred = false; // whether texts are displayed raw: the last choice

  // Copy a text in its escaped form: invisible characters must not be pasted into a terminal.
  R.Copy = ({ text, title = "copy" }) => {
    const [done, setDone] = useState("");
    const copy = async pressed => {
      pressed.preventDefault();
      pressed.stopPropagation();
      try {
        await navigator.clipboard.writeText(R.visible(text));
        setDone("copied");
      } catch {
        setDone("the browser does not let a page copy");
      }
      setTimeout(() => setDone(""), 1500);
    };
    return html`<button class="copy" title=${`${title}, as it is shown`} onClick=${copy}>${done || "copy"}</button>`;
  };

  function Rest({ cut, text, most, show }) {
    return cut && html`<button class="more" onClick=${show}>… ${R.size(text.length - most)} more</button>`;
  }

  // A text as is, in lines.
  R.Text = ({ text, most = MOST, mono = true }) => {
    const [whole, setWhole] = useState(false);
    const cut = !whole && text.length > most;
    return html`<div class="box"><pre class=${mono ? "text mono" : "text"}>${R.block(cut ? text.slice(0, most) : text)}</pre>
      <span class="tools"><${R.Copy} text=${text} /></span><${Rest} cut=${cut} text=${text} most=${most} show=${() => setWhole(true)} /></div>`;
  };

  // A message text: its markdown rendered, or raw.
  R.Prose = ({ text, most = MOST }) => {
    const [whole, setWhole] = useState(false);
    const [raw, setRaw] = useState(preferred);
    const cut = !whole && text.length > most;
    const shown = cut ? text.slice(0, most) : text;
    const turn = () => {
      preferred = !raw;
      setRaw(preferred);
    };
    return html`<div class="box">${raw ? html`<pre class="text mono">${R.block(shown)}</pre>` : html`<div class="text prose">${R.markdown(shown)}</div>`}
      <span class="tools"><button class="turn" aria-pressed=${raw ? "true" : "false"} onClick=${turn}>${raw ? "rendered" : "raw"}</button><${R.Copy} text=${text} /></span>
      <${Rest} cut=${cut} text=${text} most=${most} show=${() => setWhole(true)} /></div>`;
  };
})((self.refold ||= {}));
