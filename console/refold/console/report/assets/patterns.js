// Patterns of refold's filters: RE2's language, searched by the browser's engine. What RE2 does not have is
// refused, as in `refold grep`. Browsers backtrack, so patterns with unbounded search time are refused, too.
(R => {
  "use strict";

  const TOKEN =
    /(?<escape>\\.)|(?<class>\[\^?\]?(?:\\.|[^\]\\])*\])|(?<open>\((?:\?(?:P<\w+>|P=|<[=!]|[:=!>]|#|[a-zA-Z-]+:?))?)|(?<close>\))|(?<repeat>(?:[*+?]|\{\d*,?\d*\})[?+]?)|(?<bar>\|)|(?<literal>.)/gsu;
  const MOST_SIDE_BY_SIDE = 2;

  // `endless`: unbounded repetitions since the last fixed part, `worst`: those of an alternative read before;
  // `parted`: it contains a fixed part in every case.
  const group = () => ({ varies: false, endless: 0, worst: 0, parted: false, alternatives: false, inside: null, fixed: false });
  const sideBySide = here =>
    here.endless > MOST_SIDE_BY_SIDE
      ? `more than ${MOST_SIDE_BY_SIDE} repetitions without an end side by side: give some an end, like {0,20}`
      : "";

  function bounds(text) {
    const found = /^\{(\d*)(,?)(\d*)\}/.exec(text);
    if (!found) return text[0] === "?" ? [0, 1] : [text[0] === "*" ? 0 : 1, Infinity];
    const least = Number(found[1] || 0);
    if (!found[2]) return [least, least];
    return [least, found[3] ? Number(found[3]) : Infinity];
  }

  function repeated(here, text) {
    const [least, most] = bounds(text);
    if (here.inside && here.inside.varies && most > 1)
      return "a repetition of a varying part: the search could take very long";
    here.varies ||= least !== most;
    here.endless += most === Infinity ? 1 : 0;
    here.inside = null;
    here.fixed = false;
    return sideBySide(here);
  }

  function read(groups, kind, text) {
    const here = groups[groups.length - 1];
    if (kind === "repeat") return repeated(here, text);
    if (here.fixed) [here.endless, here.parted] = [0, !here.alternatives];
    here.inside = null;
    here.fixed = kind === "literal" || (kind === "escape" && !/[\p{L}\p{N}]/u.test(text[1]));
    if (kind === "open") groups.push(group());
    else if (kind === "close" && groups.length > 1) {
      const inside = groups.pop();
      const around = groups[groups.length - 1];
      around.inside = inside;
      around.varies ||= inside.varies;
      around.endless = Math.max(inside.worst, inside.endless) + (inside.parted ? 0 : around.endless);
      return sideBySide(around);
    } else if (kind === "bar") {
      here.varies = here.alternatives = true;
      [here.worst, here.endless, here.parted] = [Math.max(here.worst, here.endless), 0, false];
    }
    return "";
  }

  // What RE2 lacks or reads differently: look-around, backreferences, an end of the whole text, a repetition without a minimum.
  const NOT_OURS = { escape: /[AzZC1-9]/, open: /^\(\?(?:<?[=!]|P=)/, repeat: /^\{,/ };

  function problemOf(pattern) {
    const groups = [group()];
    for (const token of pattern.matchAll(TOKEN)) {
      const kind = Object.keys(token.groups).find(name => token.groups[name] !== undefined);
      if (NOT_OURS[kind]?.test(token[0])) return `${token[0]} is not part of the pattern language`;
      const problem = read(groups, kind, token[0]);
      if (problem) return problem;
    }
    return "";
  }

  // Anchors, and the parts of an expression where the same character means something else.
  const END = /\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\$/gs;

  // The pattern as two RegExps to search from their lastIndex: the `whole`, and the `endless`, for which nothing is
  // an end. Throws an Error with the reason if the pattern is refused.
  R.pattern = text => {
    const flags = /^\(\?([imsau]+)\)/.exec(text);
    const plain = text
      .slice(flags ? flags[0].length : 0)
      .replace(/\(\?P</g, "(?<");
    const kept = `g${(flags ? flags[1] : "").replace(/[^ims]/g, "")}`;
    let made;
    try {
      made = {
        whole: new RegExp(plain, kept),
        endless: new RegExp(plain.replace(END, each => (each === "$" ? "(?!)" : each)), kept),
      };
    } catch (error) {
      throw new Error(`no regular expression, or none that this browser knows: ${error.message}`);
    }
    const problem = problemOf(text);
    if (problem) throw new Error(problem);
    return made;
  };
})((self.refold ||= {}));
