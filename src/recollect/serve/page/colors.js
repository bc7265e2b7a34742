// Colours of the style sheet for what is drawn on a canvas, and word when they change.
import { useEffect, useState } from "./dom.js";

// Return the value of a custom property as the browser draws it in the scheme of now.
export function color(name) {
  const probe = document.createElement("span");
  probe.hidden = true;
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

// Return a number that changes whenever the colour scheme does.
export function useScheme() {
  const [version, setVersion] = useState(0);
  useEffect(() => {
    const update = () => setVersion((last) => last + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    const observer = new MutationObserver(update);
    observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    system.addEventListener("change", update);
    return () => {
      observer.disconnect();
      system.removeEventListener("change", update);
    };
  }, []);
  return version;
}
