// Lets the search work where the site is opened from a disk: browsers start no worker from a file, so the same script
// runs in a hidden frame instead. The theme looks for the name IFrameWorker.
(() => {
  class IFrameWorker extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "search";
      document.body.appendChild(this.frame);
      const inside = this.frame.contentDocument;
      inside.open();
      inside.write("<!doctype html><title>search</title><body></body>");
      inside.close();
      // What the script says to itself goes to us, and what we say arrives as its own messages.
      this.frame.contentWindow.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.createElement("script");
      script.src = new URL(address, document.baseURI).href;
      script.onload = () => { const said = this.waiting; this.waiting = null; said.forEach(one => this.postMessage(one)); };
      inside.body.appendChild(script);
    }
    postMessage(data) {
      if (this.waiting) { this.waiting.push(data); return; }
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() { this.frame.remove(); }
  }
  if (location.protocol === "file:") { window.IFrameWorker = IFrameWorker; window.Worker = IFrameWorker; }
})();
