// A page that is opened from disk may start no worker, and the search wants one: it gets a frame that runs the same script.
// Zensical would load such a stand-in from another host; it does not where a script of this name is given.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(address) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.inside = this.frame.contentWindow;
      this.inside.postMessage = (data) => {
        const copy = structuredClone(data); // as a worker's message is: who gets it may change it
        setTimeout(() => this.onmessage?.({ data: copy }));
      };
      const script = this.inside.document.createElement("script");
      this.ready = new Promise((begin) => (script.onload = begin));
      script.onerror = () => this.onerror?.(new Event("error"));
      script.src = address;
      this.inside.document.body.append(script);
    }
    postMessage(data) {
      const copy = structuredClone(data);
      this.ready.then(() => this.inside.onmessage({ data: copy }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
