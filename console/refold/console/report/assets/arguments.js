// A call's main argument in parts that can each be shortened: commands of a command line, or fields of a JSON object.
(R => {
  "use strict";

  const TOKEN = /'[^']*'|"(?:\\.|[^"\\])*"|\\.|(?<joint> (?:&&|\|\|?&?|;;?|&) |;;? )|[^'"\\&|; ]+|./sy;
  const MOST = 60; // parts, and leaves of an object
  const DEEPEST = 6;

  // The fields of a JSON object with values, each with its path: [["order.item", "nuts"], ...]. Anything else is returned itself.
  R.leaves = text => {
    const found = [];
    const walk = (path, value, depth) => {
      if (found.length >= MOST) return;
      if (value === null || typeof value !== "object" || depth > DEEPEST) found.push([path, typeof value === "string" ? value : JSON.stringify(value)]);
      else for (const [name, each] of Object.entries(value)) walk(path ? `${path}.${name}` : name, each, depth + 1);
    };
    try {
      const value = JSON.parse(text);
      if (value === null || typeof value !== "object") return [["", text]];
      walk("", value, 0);
    } catch {
      return [["", text]];
    }
    return found;
  };

  // The parts of a line, each with its separator from the one before: [["", "cd x"], [" && ", "git push"]].
  R.parts = line => {
    if (line.startsWith("{")) return R.leaves(line).map(([path, value], place) => [place ? ", " : "", path ? `${path}: ${value}` : value]);
    const parts = [["", ""]];
    TOKEN.lastIndex = 0;
    for (let found = TOKEN.exec(line); found && parts.length < MOST; found = TOKEN.exec(line))
      if (found.groups.joint) parts.push([found.groups.joint, ""]);
      else parts[parts.length - 1][1] += found[0];
    return parts.filter(([, part]) => part.trim());
  };
})((self.refold ||= {}));
