// What an event says, by its kind: the same texts in the same order as refold.replay.queries.rows gives a filter to search.
(R => {
  "use strict";

  const said = (value, ...names) => names.map(name => value[name] ?? "");

  // By what is in it: contents have no kind of their own.
  const CONTENTS = {
    run_started: opening,
    context_observed: opening,
    model_responded: answer,
    model_failed: value => said(value, "message", "partial_text"),
    input_received: value => [value.text ?? ""],
    approval_answered: value => [...Object.values(value.arguments || {}), value.note ?? ""],
    tool_returned: value => said(value, "output"),
    doubt_resolved: value => said(value, "note"),
    summary_returned: value => said(value, "text"),
    note_added: value => said(value, "text"),
    diagnosed: value => said(value, "text"),
    source_recorded: value => said(value, "text"),
    cancel_requested: value => said(value, "reason"),
    policy_amended: value => said(value, "reason"),
    call_refused: value => value.texts || [],
    message_injected: value => value.texts || [],
    message_trimmed: value => value.texts || [],
    summary_requested: value => value.texts || [],
    model_requested: value => value.texts || [],
  };

  function answer(value) {
    return [value.text ?? "", value.reasoning ?? "", ...(value.arguments || [])];
  }

  function opening(value) {
    return (value.messages || []).flatMap(message => [
      ...said(message, "text", "reasoning"),
      ...(message.calls || []).map(call => call.arguments ?? ""),
    ]);
  }

  R.textsOf = (event, body, content) => {
    const names = event.side === "note" || event.kind === "state_changed" ? ["reason", "why", "problem"] : [];
    const sentences = names.map(name => body?.[name]).filter(text => typeof text === "string" && text);
    const read = CONTENTS[event.kind === "late_result" ? body?.fact?.kind : event.kind];
    return content && read ? [...sentences, ...read(content)] : sentences;
  };
})((self.refold ||= {}));
