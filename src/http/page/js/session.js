// Who is signed in and what they may do; what the node says of itself.

import { state } from "./dom.js";
import { get, ask } from "./api.js";

/// `{name, roles, isAdmin, handler}`, null before the first answer.
export const session = state(null);
/// The answer of `GET /`, null where it is not given.
export const server = state(null);

function read(answer) {
  const { name, roles = [] } = answer.userCtx ?? {};
  return { name, roles, isAdmin: roles.includes("_admin"), handler: answer.info?.authenticated ?? null, handlers: answer.info?.authentication_handlers ?? [] };
}

/// Asks who is signed in.
export async function refresh() {
  const [who, what] = await Promise.all([get("_session", null, { quiet: true }), get("", null, { quiet: true }).catch(() => null)]);
  server.value = what;
  session.value = read(who);
  return session.value;
}

export async function signIn(name, password) {
  await ask("POST", "_session", { body: { name, password }, quiet: true });
  return refresh();
}

export async function signOut() {
  await ask("DELETE", "_session", { quiet: true });
  return refresh();
}
