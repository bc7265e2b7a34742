// Questions to the service. A problem becomes an Error whose message is the sentence of the service.
import { useEffect, useState } from "./dom.js";

const TOKEN = "recollect.token"; // kept until the tab is closed

export class ProblemError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

// Return the query string of the parameters that have a value.
export function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return new URLSearchParams(given).toString();
}

async function request(url, options) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ProblemError(0, "The service does not answer. Is it still running?");
  }
  const body = response.status === 204 ? null : await response.json().catch(() => null);
  if (!response.ok) throw new ProblemError(response.status, sentence(body?.detail ?? response.statusText));
  return body;
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.?!]$/.test(text) ? "" : ".");
}

export function ask(path, parameters = {}, signal = undefined) {
  const text = query(parameters);
  return request(text ? `${path}?${text}` : path, { headers: headers(), signal });
}

export function send(method, path, body) {
  const sent = body && { headers: { ...headers(), "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return request(path, { method, headers: headers(), ...sent });
}

// Delete what the parameters say.
export function remove(path, parameters) {
  return request(`${path}?${query(parameters)}`, { method: "DELETE", headers: headers() });
}

// Ask whenever the path or the parameters change. The last answer stays until the next one is there.
export function useAnswer(path, parameters, version = 0) {
  const [state, setState] = useState({ answer: null, error: null, busy: true });
  const key = path && `${path}?${query(parameters)}`;
  useEffect(() => {
    if (!key) {
      setState({ answer: null, error: null, busy: false });
      return undefined;
    }
    const controller = new AbortController();
    setState((last) => ({ ...last, busy: true }));
    ask(path, parameters, controller.signal)
      .then((answer) => setState({ answer, error: null, busy: false, key }))
      .catch((error) => {
        if (error.name !== "AbortError") setState({ answer: null, error, busy: false, key });
      });
    return () => controller.abort();
  }, [key, version]);
  // an answer to an earlier question is stale; the caller may show it while the next one is under way
  return { ...state, fresh: state.key === key };
}
