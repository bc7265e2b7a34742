// Preact with htm: components are functions that return html`<p>…</p>`.
import { h, render } from "./vendor/preact.mjs";
import { useCallback, useEffect, useId, useMemo, useRef, useState } from "./vendor/hooks.mjs";
import htm from "./vendor/htm.mjs";

const html = htm.bind(h);

export { html, render, useCallback, useEffect, useId, useMemo, useRef, useState };
