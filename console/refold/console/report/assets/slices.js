// Long work in slices: between two slices the page is drawn, and the user may cancel.
(R => {
  "use strict";

  const SLICE = 12; // milliseconds of work before the page may draw again
  const NEWS = 250; // milliseconds between two progress reports

  // Run steps until one returns that there are no more; `tell` receives the progress now and then, and at the end. Returns a stop function.
  R.sliced = (step, tell) => {
    let [going, told] = [true, performance.now()];
    const go = () => {
      if (!going) return;
      const until = performance.now() + SLICE;
      while (going && performance.now() < until) going = step();
      if (!going || performance.now() > told + NEWS) {
        tell(!going);
        told = performance.now();
      }
      if (going) setTimeout(go, 0);
    };
    setTimeout(go, 0);
    return () => { going = false; };
  };
})((self.refold ||= {}));
