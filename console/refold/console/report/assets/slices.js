// Long work a slice at a time: between two slices the page draws, and somebody may have changed their mind.
(R => {
  "use strict";

  const SLICE = 12; // milliseconds of work before the page may draw again
  const NEWS = 250; // milliseconds between two reports of how far it is

  // Takes steps until one says that there are no more; `tell` hears how far it is now and then, and at the end. Gives what stops it.
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
