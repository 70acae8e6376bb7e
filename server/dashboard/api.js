// Calls to the daemon: with the token that was typed in, where it asks for one. The token is forgotten with the tab.

const TOKEN = "verifierd.token";
const LIMIT_MS = 10000;

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const hasToken = () => Boolean(sessionStorage.getItem(TOKEN));

// False: no header could carry it.
export function setToken(text) {
  if (!/^[\x21-\x7e]+$/.test(text)) return false;
  sessionStorage.setItem(TOKEN, text);
  return true;
}

export async function call(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = { ...options.headers, ...(token ? { Authorization: "Bearer " + token } : {}) };
  return fetch(path, { ...options, headers, signal: AbortSignal.timeout(LIMIT_MS) });
}

export async function ask(path) {
  const answer = await call(path, { headers: { Accept: "application/json" } });
  if (answer.ok) return answer.json();
  const problem = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, problem.detail || path + ": " + answer.status);
}

export async function askText(path) {
  const answer = await call(path);
  if (answer.ok) return answer.text();
  throw new Refused(answer.status, path + ": " + answer.status);
}

// Null where the caller may not see it: a token that may only submit still gets the rest of a page.
export async function askIfAllowed(path) {
  try {
    return await ask(path);
  } catch (error) {
    if (error instanceof Refused && error.status === 403) return null;
    throw error;
  }
}
