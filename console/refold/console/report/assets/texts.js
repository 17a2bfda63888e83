// The texts of an event, in the order in which refold.replay.kinds.table gives them to filters.
(R => {
  "use strict";

  const DEEPEST = 4; // arguments in calls in messages: in a tampered page they may be nested to any depth

  function textsIn(value, depth) {
    if (typeof value === "string") return value ? [value] : [];
    if (value === null || typeof value !== "object" || depth > DEEPEST) return [];
    if (Array.isArray(value)) return value.flatMap(each => textsIn(each, depth + 1));
    const said = typeof value.role === "string" ? [value.text, value.reasoning, (value.calls || []).map(call => call.arguments)] : Object.values(value);
    return said.flatMap(each => textsIn(each, depth + 1));
  }

  R.textsOf = (event, body, content) => {
    const kind = event.kind === "late_result" ? body?.fact?.kind : event.kind;
    const whole = { ...body, content };
    return (R.kinds[kind]?.texts || []).flatMap(way => textsIn(way.split(".").reduce((value, name) => value?.[name], whole), 0));
  };
})((self.refold ||= {}));
